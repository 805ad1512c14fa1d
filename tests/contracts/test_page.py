"""Environment pages as contracts: pages of three layouts, and what each kind of section must give."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuready.contracts import read_contract_file
from gpuready.contracts.page import import_page
from gpuready.contracts.validate import find_problems
from gpuready.render.contract_toml import render_contract_toml

PAGES = Path(__file__).resolve().parents[1] / "pages"


def imported(name):
    return import_page((PAGES / name).read_text(encoding="utf-8"), name)


@pytest.fixture(scope="module")
def kestrel():
    return imported("kestrel.txt")


@pytest.fixture(scope="module")
def sourdough():
    return imported("sourdough.txt")


@pytest.fixture(scope="module")
def lighthouse():
    return imported("lighthouse.wiki")


def needs(contract, key):
    return [(n.want, n.when, n.level) for n in contract.needs if n.key == key]


def variable(contract, name):
    return next(v for v in contract.variables if v.name == name)


def test_a_page_names_its_framework_and_its_day(kestrel, sourdough, lighthouse):
    named = [(c.framework, c.version, c.variant) for c, _ in (kestrel, sourdough, lighthouse)]
    assert named == [
        ("kestrel", "2031.4.17", "page"),
        ("sourdough", "2032.1.5", "page"),
        ("lighthouse", "2030.11.2", "page"),
    ]


def test_navigation_is_neither_placed_nor_missed(kestrel, sourdough, lighthouse):
    for contract, unplaced in (kestrel, sourdough, lighthouse):
        said = " ".join([*contract.notes, *(text for _, text in unplaced)])
        for chrome in (
            "Jump to content",
            "Fieldguide",
            "Double-click",
            "Knowledge Sources",
            "harbour_lighthouse_Keeper",
        ):
            assert chrome not in said


def test_what_found_no_place_is_listed_with_its_line(kestrel, sourdough, lighthouse):
    assert kestrel[1] == [(34, "Weather Mild The office window should stay shut")]
    assert sourdough[1] == [] and lighthouse[1] == []


def test_requirements_whose_cells_have_run_together(kestrel):
    contract, _ = kestrel
    assert needs(contract, "os.system") == [("linux", "", "required")]
    assert needs(contract, "python.version") == [(">=3.9", "", "required")]
    assert needs(contract, "gpu.count") == [(">=1", "", "required")]
    assert needs(contract, "gpu.capability") == [(">=7.5", "", "required"), (">=8.0", "wants=bf16", "required")]
    assert needs(contract, "toolkit.version") == [("*", "", "required")]
    assert needs(contract, "toolkit.nvcc") == [("*", "", "required")]
    assert needs(contract, "nccl.version") == [("*", "gpus>1", "required")]
    assert needs(contract, "driver.version") == [("*", "", "required")]


def test_sizes_levels_and_conditions(sourdough):
    contract, _ = sourdough
    assert needs(contract, "os.system") == [("linux", "", "required")]
    assert needs(contract, "os.version") == [(">=22.04", "os.name=ubuntu", "required")]
    assert needs(contract, "os.kernel") == [(">=6.1", "", "recommended")]
    assert needs(contract, "gpu.memory") == [
        (">=12GB", "model>=3b", "required"),
        (">=20GB", "model>=3b", "recommended"),
        (">=10GB", "", "required"),
        (">=32GB", "model>=9b", "recommended"),
    ]
    assert needs(contract, "gpu.capability") == [(">=9.0", "wants=fp8", "required")]
    assert needs(contract, "torch.cuda") == [(">=12.2", "", "required"), (">=12.8", "wants=sglang", "required")]
    assert needs(contract, "cudnn.version") == [(">=9.0.1", "", "required")]
    assert needs(contract, "disk.free") == [(">=80GB", "", "required")]
    assert needs(contract, "disk.rotational") == [("false", "", "recommended")]
    assert needs(contract, "driver.version") == [(">=535", "", "required")]


def test_wiki_tables(lighthouse):
    contract, _ = lighthouse
    assert needs(contract, "os.system") == [("linux|windows", "", "required")]
    assert needs(contract, "gpu.capability") == [(">=7.0", "", "required"), (">=9.0", "", "recommended")]
    assert needs(contract, "gpu.memory") == [
        (">=12GB", "", "required"),
        (">=24GB", "model>=13b", "recommended"),
        (">=60GB", "model>13b", "recommended"),
    ]
    assert needs(contract, "torch.cuda") == [(">=12.0", "", "required"), (">=12.4", "", "recommended")]
    assert needs(contract, "driver.version") == [(">=530.0", "", "required")]
    assert needs(contract, "toolkit.version") == [(">=12.0", "", "required")]
    assert needs(contract, "torch.build") == [("cuda", "", "required")]


def test_packages(kestrel, sourdough, lighthouse):
    assert needs(kestrel[0], "package.torch") == [(">=2.1.0,<=2.3.1", "", "required")]
    assert needs(kestrel[0], "package.windrose") == [(">=0.3,<0.9", "", "required")]
    dough = sourdough[0]
    assert needs(dough, "package.torch") == [("==2.5.1|==2.7.0", "", "required")]
    assert needs(dough, "package.flash-attn") == [("*", "torch==2.5.1", "required")]
    assert needs(dough, "package.rye") == [("==1.4.0", "", "required")]
    assert needs(dough, "package.numpy") == [(">=1.26,<2.0", "", "required")]
    assert needs(dough, "package.oven-core") == [("*", "", "required")]
    assert needs(dough, "package.mamba-ssm") == [("==2.2.0", "", "optional")]
    assert needs(dough, "package.causal-conv1d") == [("*", "", "optional")]
    assert needs(dough, "package.vllm") == [(">=0.6.1,<=0.8.5", "", "optional")]
    assert needs(dough, "package.yeast") == [("*", "gpus>1", "required")]
    assert needs(lighthouse[0], "package.torch") == [
        (">=2.3", "", "required"),
        (">=2.1", "wants=torch-compile", "required"),
    ]
    assert not [
        n.key for n in dough.needs if n.key in ("package.cuda-toolkit", "package.nccl", "package.nvidia-driver")
    ]


def test_variables_from_a_table(kestrel):
    contract, _ = kestrel
    home = variable(contract, "CUDA_HOME")
    assert (home.access, home.value, home.when, home.required) == ("read", "/opt/cuda", "build", True)
    assert variable(contract, "KESTREL_NATIVE").access == "read"
    assert variable(contract, "KESTREL_NATIVE").required is False
    streams = variable(contract, "KESTREL_STREAMS")
    assert (streams.access, streams.value) == ("set", "2")
    jit = variable(contract, "KESTREL_JIT")
    assert (jit.access, jit.value) == ("set", "eager")


def test_variables_from_bullets_prose_and_code(sourdough):
    contract, _ = sourdough
    assert variable(contract, "PYTORCH_ALLOC_CONF").when == "torch>=2.9"
    assert variable(contract, "PYTORCH_ALLOC_CONF").access == "set"
    assert variable(contract, "FLOUR_SOURCE").allowed == ("MILL", "SHOP")
    assert variable(contract, "NCCL_CUMEM_ENABLE").value == "0"
    assert variable(contract, "BAKER_NAME").access == "set"
    assert variable(contract, "PYTORCH_CUDA_ALLOC_CONF").value == "expandable_segments:True"
    assert variable(contract, "NCCL_NVLS_ENABLE").value == "0"


def test_errors_whose_cells_have_run_together(kestrel, sourdough):
    assert [(e.message, e.cause, e.fix) for e in kestrel[0].errors] == [
        (
            "SystemExit: Kestrel does not fly on Windows.",
            "Running the installer on native Windows",
            "Use WSL or a Linux machine",
        ),
        (
            "RuntimeError: Toolkit and torch disagree",
            "The toolkit has another major version than the CUDA of torch",
            "Install a toolkit of the same major version",
        ),
        ("KESTREL_NATIVE asks for a compiler", "Building without g++ on the path", "Install g++ 11 or newer"),
    ]
    assert [(e.message, e.cause, e.fix) for e in sourdough[0].errors] == [
        ("CUDA out of memory", "Dough too large for the GPU", "Reduce the batch, or knead in halves"),
        ("ImportError: rye", "The rye package is missing", "`pip install rye==1.4.0`"),
        ("KeyError: 1", "oven_mapping exceeds the ovens", "Ensure `max(oven_mapping)` is small"),
        ("FP8 loaves stay flat", "GPU compute capability < 9.0", "FP8 needs Hopper cards"),
    ]


def test_errors_of_a_wiki_table(lighthouse):
    assert [(e.message, e.cause, e.fix) for e in lighthouse[0].errors] == [
        ("CUDA out of memory", "Lamp too bright", "Use a smaller lamp"),
        ("lamp not found", "No card", "Look with `nvidia-smi`"),
    ]


def test_commands_become_steps_under_their_comments(kestrel, sourdough, lighthouse):
    assert [(s.does, s.run, s.safety) for s in kestrel[0].steps] == [
        ("Look at the card", ("nvidia-smi",), "safe"),
        ("Name the toolkit", (), "manual"),
        ("Install with compiled kernels", ("env", "KESTREL_NATIVE=1", "pip", "install", "kestrel"), "ask"),
        ("Pin what it needs", ("pip", "install", "torch>=2.1.0,<=2.3.1", "windrose>=0.3"), "ask"),
    ]
    image = ("docker", "run", "-dit", "--gpus", "all", "--shm-size=8gb", "registry.example/sourdough:2")
    assert [(s.does, s.run) for s in sourdough[0].steps] == [
        ("Start the image", image),
        ("Or install from requirements", ("pip", "install", "-r", "requirements_a.txt")),
        ("Or install from requirements", ("pip", "install", "-r", "requirements_b.txt")),
        ("See that it rises", ()),
    ]
    assert lighthouse[0].steps[0].run[2] == "torch>=2.3"


def test_a_command_that_only_a_shell_could_read_is_left_to_a_person(sourdough, kestrel):
    last = sourdough[0].steps[-1]
    assert last.safety == "manual" and 'python -c "import torch' in last.note
    assert "export CUDA_HOME=/opt/cuda" in kestrel[0].steps[1].note


def test_a_principle_is_steps_in_order():
    contract, unplaced = imported("roll-call.txt")
    assert [s.does.partition(":")[0] for s in contract.steps] == ["Count", "Meet", "Seed"]
    assert all(s.safety == "manual" for s in contract.steps)
    assert [v.name for v in contract.variables] == ["RANK", "LOCAL_RANK", "WORLD_SIZE"]
    assert contract.framework == "kestrel" and unplaced == []


def test_code_evidence_stays_with_its_caption(kestrel, sourdough, lighthouse):
    assert any(n.startswith("The guard of the installer") and "does not fly" in n for n in kestrel[0].notes)
    assert any(n.startswith("vLLM empties the allocator") and "os.environ" in n for n in sourdough[0].notes)
    assert any(n.startswith("Where the lamp is chosen") and 'lamp = "bright"' in n for n in lighthouse[0].notes)


def test_features_that_a_page_speaks_of_become_capabilities(kestrel, sourdough):
    names = {c.name: c.gate for c in sourdough[0].capabilities}
    assert names["fp8"] == "fp8_scaled_mm" and names["bnb-4bit"] == "bnb_4bit" and names["cuda"] == ""
    assert [c.name for c in kestrel[0].capabilities if c.level == "required"] == ["cuda"]


@pytest.mark.parametrize("name", ["kestrel.txt", "sourdough.txt", "lighthouse.wiki", "roll-call.txt"])
def test_nothing_of_a_page_is_lost(name):
    """Every word of every line is in the contract, in the list of the unplaced, or is navigation."""
    text = (PAGES / name).read_text(encoding="utf-8")
    contract, unplaced = import_page(text, name)
    kept = str(contract.to_json()) + str(unplaced)
    begins = "System Requirements" if "System Requirements" in text else "Description"
    body = text.partition("\nOverview")[2] or text.partition("Overview ==")[2]
    body = body.partition(begins)[2].partition("Related Pages")[0]
    marks = ("{|", "|}", "|-", "!", "==", "<", "#")
    for line in body.splitlines():
        words = line.strip(" •*|`")
        if not words or (line + words).startswith(marks) or words.startswith(marks) or _is_head(words):
            continue
        for word in words.replace("||", " ").replace("**", "").split():
            bare = word.strip("`\"'\\,.;:")
            assert bare in kept or bare.replace("_", "-") in kept, (name, line, bare)


def _is_head(line):
    return len(line.split()) <= 5 and all(w[0].isupper() or not w[0].isalpha() for w in line.split())


@pytest.mark.parametrize("name", ["kestrel.txt", "sourdough.txt", "lighthouse.wiki", "roll-call.txt"])
def test_an_imported_page_is_a_sound_contract(name):
    contract, _ = imported(name)
    data = {k: v for k, v in contract.to_json().items() if k != "says"}
    assert find_problems(data, name) == []
    assert all(n.cite.startswith("environment page (") and "line " in n.cite for n in contract.needs)


@pytest.mark.parametrize("name", ["kestrel.txt", "lighthouse.wiki"])
def test_importing_twice_gives_the_same(name):
    assert imported(name) == imported(name)


def test_line_ends_do_not_matter():
    text = (PAGES / "kestrel.txt").read_text(encoding="utf-8")
    assert import_page(text.replace("\n", "\r\n"), "kestrel.txt") == import_page(text, "kestrel.txt")


def test_tables_with_marks_between_cells_are_read_too():
    table = "| Package | Version |\n|---|---|\n| torch | >= 2.4 |\n| `rye` | == 1.0 |\n"
    markdown = f"# Environment: corner_kiosk_CUDA\n\n## Python Packages\n\n{table}"
    contract, unplaced = import_page(markdown, "kiosk.md")
    assert needs(contract, "package.torch") == [(">=2.4", "", "required")]
    assert needs(contract, "package.rye") == [("==1.0", "", "required")]
    assert contract.framework == "kiosk" and unplaced == []


RST_PAGE = """Installation
============

Requirements
------------

- **Python**: Version >= 3.10

.. code:: bash

    # first
    # second
    docker run --shm-size="16g" -e KITE_HOME=/data -e KITE_TOKEN image
    MAX_JOBS=4 NVCC_THREADS=2 pip install kite-ml[fast]  # all of it
    git clone https://git.example/sky/kite-ml
    # the last word
"""


def test_a_page_in_rst_keeps_commands_variables_and_shared_memory():
    contract, unplaced = import_page(RST_PAGE, "install.rst")
    assert contract.framework == "kite-ml"
    assert {(n.key, n.want, n.level) for n in contract.needs} == {
        ("python.version", ">=3.10", "required"),
        ("system.shm", ">=16GB", "recommended"),
    }
    values = {v.name: v.value for v in contract.variables}
    assert values == {"KITE_HOME": "/data", "KITE_TOKEN": "", "MAX_JOBS": "4", "NVCC_THREADS": "2"}
    assert contract.steps[0].does == "first: second"
    assert contract.steps[-1].does == "the last word" and not unplaced


def test_columns_of_minimum_and_recommended_versions():
    table = "## Requirement\n\n| Optional | Minimum | Recommend |\n|---|---|---|\n| CUDA | 11.6 | 12.2 |\n"
    table += (
        "\n|  | Range | Recommended |\n|---|---|---|\n| datasets | >=3.0, <4.8 | 3.6.0/4.7.1 |\n| torch | 2.0 | |\n"
    )
    contract, _ = import_page(table, "readme.md")
    assert [(n.key, n.want, n.level) for n in contract.needs] == [
        ("torch.cuda", ">=11.6", "optional"),
        ("torch.cuda", ">=12.2", "optional"),
        ("package.datasets", ">=3.0,<4.8", "required"),
        ("package.datasets", ">=3.6.0", "recommended"),
        ("package.torch", ">=2.0", "required"),
    ]


@pytest.mark.parametrize(
    ("line", "needs"),
    [
        ("- CUDA version 13.0, which needs an NVIDIA driver of r580 or newer", [("torch.cuda", ">=13.0"), ("driver.version", ">=580")]),
        ("- Python 3.10 - 3.13", [("python.version", ">=3.10,<3.14")]),
        ("- Python 3.10 to 3.13.2", [("python.version", ">=3.10,<3.13.3")]),
        ("Kite has a minimum requirement of CUDA version 11.3.", [("torch.cuda", ">=11.3")]),
    ],
)  # fmt: skip
def test_ranges_branches_of_drivers_and_minimums_in_words(line, needs):
    contract, _ = import_page(f"# Kite\n\n## Requirements\n\n{line}\n", "kite.md")
    assert [(need.key, need.want) for need in contract.needs] == needs


def test_variables_before_a_command_in_a_cell_are_kept():
    page = '# Kite\n\n## Optional packages\n\n| Package | How |\n|---|---|\n| string | `KITE_FLAGS="-a -b" KITE_JOBS=8 pip install string` |\n'
    contract, _ = import_page(page, "kite.md")
    assert {v.name: v.value for v in contract.variables} == {"KITE_FLAGS": "-a -b", "KITE_JOBS": "8"}


@pytest.mark.parametrize(
    "block",
    ['[[tool.uv.index]]\nurl = "https://mirror.example"  # yours\ndefault = true', "KiteError: the string broke"],
)
def test_settings_and_messages_are_no_commands(block):
    contract, unplaced = import_page(f"# Kite\n\n## Installation\n\n```\n{block}\n```\n\nMore.\n", "kite.md")
    assert not contract.steps and [text for _, text in unplaced] == [block]


@pytest.mark.parametrize(
    ("title", "framework"),
    [
        ("Environment:NVIDIA Megatron LM CUDA", "megatron-lm"),
        ("Environment:OpenRLHF vLLM GPU", "openrlhf"),
        ("Environment:Vllm project Vllm CUDA", "vllm"),
    ],
)
def test_a_title_names_the_framework_of_the_page(title, framework):
    contract, _ = import_page(f"{title}\n\n== Requirements ==\n\n* Python 3.10+\n", "page.wiki")
    assert contract.framework == framework


def test_an_imported_page_is_what_contract_takes(tmp_path):
    contract, _ = import_page(RST_PAGE + "\n\nElsewhere\n---------\n\nwords ' \" {x}\n", "install.rst")
    file = tmp_path / "mine.toml"
    file.write_text(render_contract_toml(contract, [(3, "a line")]), encoding="utf-8")
    assert read_contract_file(str(file)) == contract
    assert "# 3: a line" in file.read_text(encoding="utf-8")
