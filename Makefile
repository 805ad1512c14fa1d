# One command checks this machine, one runs the tests; both set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
FRAMEWORK ?=
# A shell that forbids it costs minutes: every process of a test would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PIP := $(BIN)/python -m pip --disable-pip-version-check

# The tables of the catalogue, the contracts and the log patterns are compiled from TOML, that of the rules from their modules: by the installation, and here after an edit.
TABLES := $(wildcard $(addprefix src/gpuready/,catalog/*.toml catalog/causes/*.toml catalog/causes/phrases/*.toml contracts/*.toml rules/*/*.py system/redaction/*.toml))
$(VENV)/.compiled: tools/compile_catalog.py $(TABLES)
	@mkdir -p $(VENV)
	@[ ! -e $(VENV)/.installed ] || $(BIN)/python tools/compile_catalog.py
	@touch $@

$(VENV)/.installed: pyproject.toml | $(VENV)/.compiled
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet -e .
	@touch $@

# By the lock, each file by its hash; LOCKED=only and LOCKED=no: tools/development.sh says what they do. What is compiled here once is not compiled by
# each part that starts first: our modules while a download is waited for, the tables after they are made, pytest and hypothesis' table of Unicode.
$(VENV)/.tested: pyproject.toml requirements/test.txt | $(VENV)/.compiled
	@[ -x $(BIN)/python ] || $(PYTHON) -m venv --without-pip $(VENV)
	@$(BIN)/python -m compileall -q src & PYTHON='$(PYTHON)' sh tools/development.sh $(BIN)/python '$(LOCKED)' || exit; wait $$!
	@$(BIN)/python -m compileall -q src & $(BIN)/python -c 'import pytest; from hypothesis import strategies; strategies.text().validate()'; wait $$!
	@touch $@ $(VENV)/.installed

# Exit 1 (not ready) and 3 (undecided) are answers about the machine, not failures of the command.
check: $(VENV)/.installed
	@$(BIN)/gpuready check $(FRAMEWORK); code=$$?; [ $$code -ne 2 ] && [ $$code -lt 100 ]

# In parts, four at a time for two cores since many tests wait; each is shown whole when it is done, all are run, and any may fail it. What
# waits most goes first, then what takes longest. A part is a process of its own: where other tests or a worker left threads, nothing may
# fork, and tests/system does. A real browser looks at the pages, real shells complete words: Debian's, installed here where that can be done.
ALONE := $(addprefix tests/,apply faults fit prove launcher)
LAUNCHED := tests/faults/test_launch_faults.py
RANKS := $(addprefix tests/,rollcall runtime) $(LAUNCHED)
CHOICES := $(addprefix tests/,plan rules)
MACHINES := $(addprefix tests/,system supply)
STARTED := $(addprefix tests/,extensions fleet mcp)
ENVIRONMENTS := $(addprefix tests/,imports workflow)
PAGES := $(addprefix tests/,render web commands)
TEXTS := $(addprefix tests/,fuzz logs machines contracts catalog containers secrets)
OTHERS := $(filter-out $(ALONE) $(RANKS) $(CHOICES) $(MACHINES) $(PAGES) $(TEXTS) $(STARTED) $(ENVIRONMENTS),$(patsubst %/,%,$(sort $(dir $(wildcard tests/*/test_*.py)))))
TOGETHER := test-ranks test-choices test-machines test-others test-started test-environments test-pages test-texts test-files
PARTS := tests/launcher test-ranks tests/faults tests/apply test-texts test-pages test-started tests/prove tests/fit test-others test-environments test-machines test-files test-types test-choices
test: $(VENV)/.tested
	@$(MAKE) --no-print-directory --keep-going --jobs 4 --output-sync=target $(VENV)/.browser $(PARTS)

# What a change touches, by the imports, in less than a minute; BASE=main compares with another commit than the last one.
BASE ?= HEAD
test-changed: $(VENV)/.tested
	$(BIN)/python tools/changed_tests.py $(BASE)

# Beside the first parts; those that open pages and complete words wait for it.
$(VENV)/.browser: $(VENV)/.tested
	$(BIN)/python -m tests.browser
	@touch $@
test-pages test-started test-environments test-others test-files: $(VENV)/.browser

# To take assertions apart so that a failure shows their values costs a third of all collecting, and the plugins that add logs, warnings and examples
# to a report half of what pytest itself takes for a test: only what failed is run again with them.
PYTEST = $(BIN)/python -m pytest -o cache_dir=build/failed/$(@F)
PLAIN := --assert=plain $(addprefix -p no:,logging warnings threadexception unraisableexception hypothesispytest)
test-ranks: TESTS = $(RANKS)
test-choices: TESTS = $(CHOICES)
test-machines: TESTS = $(MACHINES)
test-others: TESTS = $(OTHERS)
test-started: TESTS = $(STARTED)
test-environments: TESTS = $(ENVIRONMENTS)
test-pages: TESTS = $(PAGES)
test-texts: TESTS = $(TEXTS)
test-files: TESTS = $(wildcard tests/test_*.py)
$(ALONE): TESTS = $@
# Its ranks are forks of the process with torch that tests/runtime has as well: once is enough.
tests/faults: TESTS = $@ --ignore=$(LAUNCHED)
$(ALONE) $(TOGETHER): $(VENV)/.tested
	@$(PYTEST) $(PLAIN) $(TESTS) || { $(PYTEST) --last-failed $(TESTS) && echo '$@: passed only when it was run again'; }

test-types: $(VENV)/.tested
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# Every case of tests/faults/cases.toml in one run, and one table of what was expected and seen. As root, for disks that
# freeze, die and fill up in mounts that nobody else sees. REPORT=FILE writes the table; ONLY=A,D01 takes a part of the cases, and
# KEPT=FILE keeps what was seen, so that a run may be done in parts.
faults: $(VENV)/.tested
	$(BIN)/python -m tests.faults --only '$(ONLY)' --kept '$(KEPT)' --report '$(REPORT)'

# Provokes real failures and records them with their causes in tests/induce/corpus; minutes, and gigabytes of
# packages under INDUCE_HOME. Root and nvcc provoke more. On a machine with an NVIDIA GPU: tests/induce/gpu.py.
induce: $(VENV)/.tested
	$(BIN)/python -m tests.induce.induce

lint: $(VENV)/.tested
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(VENV)/.tested
	$(BIN)/mypy

# What is generated and committed: the reference of commands, the table of rules, the environment pages; and the compiled tables.
catalog: $(VENV)/.tested
	$(BIN)/python tools/compile_catalog.py
	$(BIN)/python tools/reference.py
	$(BIN)/python tools/environment_pages.py

# What gpuready says, kept whole: the samples of the docs, the golden screens, the golden reports. Read the difference.
golden: $(VENV)/.tested
	$(BIN)/python -m pytest tests/test_docs.py --update-samples
	$(BIN)/python -m pytest tests/render/test_golden.py tests/machines/test_goldens.py --update-golden

# The site in build/site, with the reference pages that are not committed; a dead link or anchor fails, and nothing is fetched. `make test` builds it too.
docs: $(VENV)/.tested
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

# Every command of README, tutorial and how-to pages, in order, install and run included; minutes, and a network. PAGES_RUN=tutorial takes a part, REPORT=FILE writes the table.
# What is run smaller or not at all, and why: tests/docs_commands.toml. `make test` parses them all.
docs-run: $(VENV)/.tested
	$(BIN)/python -m tests.docs_commands $(PAGES_RUN) $(if $(REPORT),--report '$(REPORT)')

# Resolve the development environment anew, for every Python that is supported, with the hash of every file.
LOCK := $(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.10 --no-emit-index-url --no-annotate --custom-compile-command 'make lock'
lock: $(VENV)/.tested
	$(LOCK) pyproject.toml -o requirements/core.txt
	$(LOCK) pyproject.toml requirements/build.in -o requirements/action.txt
	$(LOCK) pyproject.toml requirements/build.in --extra test -o requirements/test.txt

# Known weaknesses of the locked versions, as the index tells them; needs a network. A package without an answer fails it.
audit: $(VENV)/.tested
	$(PYTHON) -m venv build/audit
	build/audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit==2.10.1
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/core.txt
	build/audit/bin/pip-audit --strict --disable-pip --require-hashes -r requirements/test.txt

# Every benchmark that this machine can run, into one record; 25 minutes where nothing else runs.
# ARGS='--quick' takes a few minutes and keeps nothing, ARGS='--list' says what there is.
benchmarks: $(VENV)/.tested
	$(BIN)/python benchmarks/all.py $(ARGS)

# What is committed, built twice to the same bytes; the wheel in a bare venv; and what it brings along.
release-check: export SOURCE_DATE_EPOCH ?= $(shell git log -1 --format=%ct)
release-check: $(VENV)/.tested
	rm -rf dist build/release
	for one in a b; do \
	  git clone --quiet . build/release/$$one && \
	  env -u BUILD_EXT $(BIN)/uv build --quiet --no-build-isolation --python $(BIN)/python --out-dir build/release/$$one/dist build/release/$$one || exit 1; \
	done
	diff -r build/release/a/dist build/release/b/dist
	mkdir dist && cp build/release/a/dist/gpuready-* dist
	$(BIN)/uv venv --quiet --clear build/release/venv
	$(BIN)/uv pip install --quiet --python build/release/venv --require-hashes -r requirements/core.txt
	$(BIN)/uv pip install --quiet --python build/release/venv --no-deps dist/*.whl
	cd build/release && env -i PATH=/usr/bin:/bin HOME=$$PWD venv/bin/gpuready check; test $$? -ne 2
	$(BIN)/uv tool run --quiet --from cyclonedx-bom==7.5.0 cyclonedx-py environment --output-reproducible --of JSON -o dist/sbom.cdx.json build/release/venv
	cd dist && sha256sum gpuready-* sbom.cdx.json > SHA256SUMS && sha256sum --check --strict SHA256SUMS

clean:
	rm -rf $(VENV) dist build .mypy_cache .pytest_cache .ruff_cache

.PHONY: check test test-changed $(PARTS) faults induce lint types docs docs-run catalog golden lock audit benchmarks release-check clean
