# One command checks this machine, one runs the tests; both set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORK ?=

.PHONY: check test faults induce lint types docs catalog benchmarks release-check clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[yaml]'
	@touch $@

$(VENV)/.tested: $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	@touch $@

# Exit 1 (not ready) and 3 (undecided) are answers about the machine, not failures of the command.
check: $(VENV)/.installed
	@$(BIN)/tarmac check $(FRAMEWORK); code=$$?; [ $$code -ne 2 ] && [ $$code -lt 100 ]

# On two cores, but for what forks: a worker of xdist has threads, and there looks run as threads too.
# A real browser looks at the pages: Debian's Chromium, installed here where that can be done.
test: $(VENV)/.tested
	$(BIN)/python -m tests.browser
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -n 2 --dist loadscope --ignore tests/system --ignore tests/faults
	$(BIN)/python -m pytest tests/system tests/faults

# Needs root: disks that freeze, die, fill up and cannot be written, in mounts that nobody else sees.
# REPORT=FILE writes the table of what was expected and seen.
faults: $(VENV)/.tested
	FAULTS_REPORT='$(REPORT)' $(BIN)/python -m pytest -m faults -rs tests/faults tests/prove

# Provokes real failures and records them with their causes in tests/induce/corpus; minutes, and gigabytes of
# packages under INDUCE_HOME. Root and nvcc provoke more. On a machine with an NVIDIA GPU: tests/induce/gpu.py.
induce: $(VENV)/.tested
	$(BIN)/python -m tests.induce.induce

lint: $(VENV)/.tested
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.tested
	$(BIN)/mypy

# What is generated and committed: the compact catalogue and the reference pages.
catalog: $(VENV)/.tested
	$(BIN)/python tools/compile_catalog.py
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/environment_pages.py
	$(BIN)/python tools/benchmark_pages.py
	$(BIN)/python tools/terminal_svg.py

# The site in build/site; a dead link or anchor fails, and nothing is fetched. `make test` builds it too.
docs: $(VENV)/.tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

benchmarks: $(VENV)/.tested
	$(BIN)/python benchmarks/check_speed.py

# The sdist and the wheel built twice, the same bytes; the wheel in a bare venv; and what it brings along.
release-check: $(VENV)/.tested
	$(BIN)/python -m pip install --quiet --disable-pip-version-check hatchling
	$(BIN)/python tools/wheel_check.py dist
	$(BIN)/python tools/sbom.py --extra yaml -o dist/sbom.cdx.json

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache
