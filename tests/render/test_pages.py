"""The page of a code, the facts of a machine, contracts."""

from __future__ import annotations

from gpuready.model import (
    NOT_STATED,
    Capability,
    Contract,
    ContractVariable,
    Fact,
    Facts,
    FixStep,
    KnownError,
    Requirement,
)
from gpuready.model.contract import ContractCheck
from gpuready.render import contract, explain, facts
from gpuready.render.layout import Screen

REPORTED = {
    "code": "DRV001",
    "name": "driver-older-than-wheel",
    "severity": "error",
    "title": "The driver is older than the torch wheel needs.",
    "text": "A ``CUDA`` build runs on every driver\nfrom the floor of its major release on.\n\n"
    "Two ways out:\n\n- a torch built for an older CUDA\n- a newer driver\n\n    nvidia-smi",
    "reads": ["torch.cuda", "driver.version", "torch.cuda"],
    "signs": ["The NVIDIA driver on your system is too old"],
}


def test_the_page_of_a_code():
    assert explain.render_rule_page(REPORTED) == (
        "error[DRV001]: The driver is older than the torch wheel needs\n"
        "  driver-older-than-wheel\n"
        "\n"
        "A `CUDA` build runs on every driver from the floor of its major release on.\n"
        "\n"
        "Two ways out:\n"
        "\n"
        "- a torch built for an older CUDA\n"
        "- a newer driver\n"
        "\n"
        "    nvidia-smi\n"
        "\n"
        "    reads  torch.cuda, driver.version\n"
        "\n"
        " in a log  The NVIDIA driver on your system is too old\n"
    )


def test_headings_of_a_page():
    page = explain.render_rule_page(
        REPORTED | {"text": "## How to fix\nInstall a newer driver.\n\n- or not"}, Screen(colour=True)
    )
    assert "\n\x1b[1mHow to fix\x1b[0m\nInstall a newer driver.\n\n- or not\n" in page


def test_a_page_without_signs_has_no_place_for_them():
    assert "in a log" not in explain.render_rule_page(REPORTED | {"signs": []})


def test_the_index():
    assert explain.render_rule_index([REPORTED]) == "DRV001  error  The driver is older than the torch wheel needs\n"
    assert explain.render_rule_index([]) == ""


def test_the_facts_of_a_machine():
    known = Facts(
        [
            Fact("gpu.count", 1, "NVML"),
            Fact("gpu.capability", None, "NVML", gap="permission denied"),
            Fact("toolkit.version", None, "/usr/local"),
            Fact("driver.version", None, gap=NOT_STATED),
        ],
        "gpu-07",
    )
    assert facts.render_fact_list(known) == (
        "gpu-07                                                        4 facts, 2 unknown\n"
        "\n"
        "  gpu.count        1          NVML\n"
        "  gpu.capability   unknown    permission denied\n"
        "  toolkit.version  absent     /usr/local\n"
        "  driver.version   not given\n"
    )
    assert facts.render_fact_list(Facts([])).startswith("this machine ")


CONTRACT = Contract(
    "demo",
    "1.0",
    variant="vllm",
    title="A demonstration",
    says="needs from its metadata",
    needs=(Requirement("package.torch", ">=2.2,<3", when="wants=fp8", cite="setup.py:12"),),
    capabilities=(Capability("fp8", "optional", gate="fp8", cite="README.md:3"),),
    variables=(ContractVariable("DEMO_HOME", "read", "/var/demo", required=True, cite="env.py:1"),),
    errors=(KnownError("CUDA error", "the driver is old", "upgrade it", "DRV001", "faq.md"),),
    steps=(FixStep("install", ("pip", "install", "demo demo"), "ask", note="in a venv"),),
    notes=("It is only a demonstration.",),
)


def test_a_contract_whole():
    assert contract.render_contract_screen(CONTRACT) == (
        "demo 1.0:vllm                                                               cuda\n"
        "  A demonstration\n"
        "  needs from its metadata\n"
        "\n"
        "needs\n"
        "  package.torch  >= 2.2, < 3  required when wants=fp8\n"
        "      setup.py:12\n"
        "\n"
        "capabilities\n"
        "  fp8  fp8  optional\n"
        "      README.md:3\n"
        "\n"
        "variables\n"
        "  DEMO_HOME  /var/demo  read, required\n"
        "      env.py:1\n"
        "\n"
        "errors\n"
        "  DRV001 CUDA error\n"
        "      the driver is old: upgrade it\n"
        "      faq.md\n"
        "\n"
        "steps\n"
        "  install                                                             asks first\n"
        "      $ pip install 'demo demo'\n"
        "      in a venv\n"
        "\n"
        "notes\n"
        "  It is only a demonstration.\n"
    )


def test_an_empty_contract_is_its_name():
    assert contract.render_contract_screen(Contract("demo", "1.0"), Screen(40)) == "demo 1.0".ljust(36) + "cuda\n"


def test_the_list_of_contracts():
    rows = [
        {"file": "a.json", "framework": "demo", "page": True, "variant": "", "version": "1.0"},
        {"file": "b.json", "framework": "demo", "page": False, "variant": "vllm", "version": "2.0"},
    ]
    assert contract.render_contract_list(rows) == (
        "framework  version  variant\ndemo       1.0\ndemo       2.0      vllm\n"
    )


def test_the_difference_of_two():
    assert contract.render_contract_diff("a==1", "a==2", []) == "a==1 and a==2 have the same requirements\n"
    rows = [
        {"change": "changed", "table": "needs", "name": "package.torch", "before": ">=2.6", "after": ">=2.8"},
        {"change": "added", "table": "variables", "name": "KITE_X", "before": "", "after": "read"},
    ]
    assert contract.render_contract_diff("a==1", "a==2", rows) == (
        "a==1 -> a==2\n\nneeds\n  changed package.torch: >=2.6 -> >=2.8\n\nvariables\n  added KITE_X: read\n"
    )


def test_a_contract_that_was_checked():
    faulty = ContractCheck("a/k.toml", None, ("k.toml: the key 'need' is not known", "k.toml: another"))
    assert contract.render_contract_check(faulty) == "k.toml: the key 'need' is not known\nk.toml: another\n"
    sound = contract.render_contract_check(ContractCheck("k.toml", Contract("kite", "1.2")))
    assert sound.startswith("k.toml: no faults found\n\nkite 1.2")
