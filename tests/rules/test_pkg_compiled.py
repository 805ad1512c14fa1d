"""Compiled packages: the CUDA, the torch and the spelling of strings that they were built for."""

from __future__ import annotations

import pytest

from gpuready.catalog import packages
from gpuready.model import Fact, Facts, Finding, UnknownFactError, versions
from gpuready.rules import torch_compatibility
from tests.rules.installed import row, torch
from tests.rules.worlds import H100, contract, facts, judged, need


def linked(**rows):
    names = {name.replace("_", "-"): one for name, one in rows.items()}
    return {f"package.{name}": "1.0" for name in names} | {"extension.linked": names}


# -- PKG010, PKG011 -----------------------------------------------------------------------------------


def test_another_runtime_that_is_nowhere():
    broken = H100 | linked(xformers=row("12", missing=("libcudart.so.12",))) | {"torch.cuda": "13.0"}
    assert judged("PKG010", broken).severity == "warning", "nobody asks for it"
    asked = judged("PKG010", broken | {"job.wants": ("xformers",)})
    assert asked.severity == "error" and "xformers (CUDA 12)" in asked.says
    required = judged("PKG010", broken, contract(need("package.xformers", "*")))
    assert required.severity == "warning", "it imports without its kernels, and nothing asks for these"
    assert "/site/x.so" in required.needs[0].cite
    grave = H100 | linked(vllm=row("12", missing=("libcudart.so.12",))) | {"torch.cuda": "13.0"}
    assert judged("PKG010", grave, contract(need("package.vllm", "*"))).severity == "error"


def test_another_runtime_that_is_found_loads_a_second_cuda():
    broken = H100 | linked(vllm=row("12")) | {"torch.cuda": "13.0", "job.wants": ("vllm",)}
    assert judged("PKG010", broken).severity == "warning"


def test_packages_that_weigh_the_same_for_everybody():
    thirteen = {"torch.cuda": "13.0"}
    assert judged("PKG010", H100 | linked(torchvision=row("12")) | thirteen).severity == "error"
    ao = linked(torchao=row("12", missing=("libcudart.so.12",))) | thirteen
    assert judged("PKG010", H100 | ao | {"job.wants": ("torchao",)}).severity == "warning"


def test_a_library_that_is_missing_tells_as_much_as_the_runtime():
    broken = linked(transformer_engine=row(None, missing=("libcublas.so.12", "libcufft.so.11")))
    assert "CUDA 12" in judged("PKG010", H100 | broken | {"torch.cuda": "13.0"}).says
    assert judged("PKG010", H100 | broken) is None
    other = linked(apex=row(None, missing=("libfoo.so.1",)))
    assert judged("PKG010", H100 | other | {"torch.cuda": "13.0"}) is None


def test_bitsandbytes_is_no_business_of_this_rule():
    broken = linked(bitsandbytes=row("12"), xformers=row("13")) | {"torch.cuda": "13.0"}
    assert judged("PKG010", H100 | broken) is None


def test_unseen_links_hold_back_only_what_needs_them():
    dark = {k: v for k, v in H100.items() if k != "extension.linked"}
    for code in ("PKG010", "PKG011"):
        assert judged(code, dark) is None
        assert judged(code, dark | {"package.vllm": "0.10.2"}) is None, "it would be a warning"
        asked = dark | {"package.vllm": "0.10.2", "job.wants": ("vllm",)}
        assert isinstance(judged(code, asked), UnknownFactError)
        required = contract(need("package.vllm", "*"))
        assert isinstance(judged(code, dark | {"package.vllm": "0.10.2"}, required), UnknownFactError)


def test_a_package_of_which_only_the_version_is_unknown_is_there():
    twice = [*facts(H100 | linked(vllm=row("13"))), Fact("package.vllm", None, gap="listed twice")]
    assert list(torch_compatibility.linked_extensions(Facts(twice), contract())) == ["vllm"]
    assert torch_compatibility.linked_extensions(facts(H100), contract()) == {}


@pytest.mark.parametrize("torch_abi, own, fires", [(True, "old", True), (False, "cxx11", True), (True, "cxx11", False)])
def test_the_spelling_of_strings(torch_abi, own, fires):
    broken = H100 | linked(flash_attn=row(abi=own)) | {"torch.abi": torch_abi, "job.wants": ("flash-attn",)}
    found = judged("PKG011", broken)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "error" and "--no-build-isolation" in found.fix[0].run


def test_an_extension_without_a_spelling_or_without_torch():
    for one in (row(abi=None), row(abi="old", torch=False)):
        assert judged("PKG011", H100 | linked(xformers=one)) is None
    asked = H100 | linked(vllm=row()) | {"job.wants": ("vllm",)}
    assert isinstance(judged("PKG011", asked, torch_abi="no symbols"), UnknownFactError)
    assert judged("PKG011", H100 | linked(vllm=row()), torch_abi="no symbols") is None


# -- PKG012 -------------------------------------------------------------------------------------------

FLASH = {"job.wants": ("flash-attn",)}


@pytest.mark.parametrize(
    "tag, version, cuda, abi, wrong",
    [
        ("cu12torch2.8cxx11abitrue", "2.8.0+cu128", "12.8", True, None),
        ("cu12torch2.8cxx11abiTRUE", "2.8.0+cu126", "12.6", True, None),
        ("cu12torch2.8cxx11abitrue", "2.9.1+cu128", "12.8", True, "torch"),
        ("cu12torch2.8cxx11abifalse", "2.8.0+cu128", "12.8", True, "C++ ABI"),
        ("cu12torch2.9cxx11abitrue", "2.9.0+cu130", "13.0", True, "CUDA"),
        ("cu130torch2.9", "2.9.0+cu130", "13.0", True, None),
        ("cu130torch2.9", "2.9.0+cu128", "12.8", True, "CUDA"),
        ("cu12torch2.8cxx11abitrue", "2.9.0a0+nv25.8", "13.0", True, None),
        ("local.build", "2.9.0+cu128", "12.8", True, None),
    ],
)
def test_what_a_ready_made_wheel_is_made_for(tag, version, cuda, abi, wrong):
    values = H100 | FLASH | torch(version, cuda) | {"package.flash-attn": f"2.8.3+{tag}", "torch.abi": abi}
    found = judged("PKG012", values)
    assert (found is None) is (wrong is None)
    if found:
        assert found.severity == "error" and found.says.endswith(f"made for another {wrong}")


def test_a_version_that_does_not_say_is_not_judged():
    assert judged("PKG012", H100 | FLASH | torch("2.12.0+cu130", "13.0") | {"package.flash-attn": "2.8.3"}) is None


def test_not_asked_for_it_is_a_warning():
    broken = H100 | torch("2.9.1+cu128") | {"package.flash-attn": "2.8.3+cu12torch2.8cxx11abitrue"}
    assert judged("PKG012", broken).severity == "warning"


def test_a_flash_attn_that_would_have_to_be_compiled():
    agreed = contract(need("package.flash-attn", "==2.8.3", when="wants=flash-attn"))
    newer = H100 | torch("2.9.1+cu128")
    found = judged("PKG012", newer | FLASH, agreed)
    assert found.severity == "warning" and "2.8.0" in found.fix[0].does
    assert judged("PKG012", newer, agreed) is None, "nobody wants it"
    assert judged("PKG012", H100 | FLASH, agreed) is None, "torch 2.8 has its wheel"
    assert judged("PKG012", newer | FLASH, contract(need("package.flash-attn", "*"))) is None, (
        "of 2.8.3.post2 nobody knows"
    )


# -- PKG013, PKG023 -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code, package, version, of, fires",
    [
        ("PKG013", "xformers", "0.0.32.post2", "2.8.0+cu128", False),
        ("PKG013", "xformers", "0.0.32.post2", "2.9.1+cu128", True),
        ("PKG013", "xformers", "0.0.35", "2.12.0+cu130", False),
        ("PKG013", "xformers", "0.0.35", "2.9.0+cu128", True),
        ("PKG013", "xformers", "0.0.33+5d4b92a.d20251104", "2.8.0", False),
        ("PKG013", "xformers", "9.9", "2.8.0", False),
        ("PKG013", "xformers", "0.0.32.post2", "2.9.0a0+nv25.8", False),
        ("PKG013", "xformers", "0.0.32.post2", "2.9.0+gitabc", False),
        ("PKG023", "vllm", "0.10.2", "2.8.0", False),
        ("PKG023", "vllm", "0.11.2", "2.10.0", True),
        ("PKG023", "vllm", "0.11.2+cpu", "2.10.0+cpu", False),
    ],
)
def test_packages_that_pin_torch(code, package, version, of, fires):
    values = H100 | torch(of) | {f"package.{package}": version, "job.wants": (package,)}
    found = judged(code, values)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "error" and found.needs[0].key == "package.torch"


def test_the_fix_is_the_release_of_this_torch_or_the_torch_of_this_release():
    found = judged("PKG013", H100 | torch("2.9.1+cu128") | {"package.xformers": "0.0.32.post2"})
    assert found.severity == "warning"
    assert [step.run[-1] for step in found.fix] == ["xformers==0.0.33.post2", "torch==2.8.0"]
    agreed = contract(need("package.torch", ">=2.9"))
    narrow = judged("PKG013", H100 | torch("2.9.1+cu128") | {"package.xformers": "0.0.32.post2"}, agreed)
    assert [step.run[-1] for step in narrow.fix] == ["xformers==0.0.33.post2"]


def test_in_conda_packages_are_built_anew_for_each_torch():
    broken = (
        H100 | torch("2.9.1") | {"package.xformers": "0.0.32.post2", "job.wants": ("xformers",), "python.kind": "conda"}
    )
    assert judged("PKG013", broken).severity == "warning"
    vision = H100 | torch("2.9.1") | {"package.torchvision": "0.21.0", "python.kind": "conda"}
    assert judged("PKG019", vision).severity == "warning"


@pytest.mark.parametrize(
    "lines, fires",
    [
        (("torch==2.8.0",), True),
        (("torch (==2.8.0)",), True),
        (("torch == 2.10.0", "numpy"), False),
        (("numpy",), False),
        (("torch>=2.4",), False),
        (('torch==2.8.0; platform_system == "Darwin"',), False),
    ],
)
def test_metadata_is_believed_before_the_catalogue(lines, fires):
    own = {"vllm": {"requires_dist": lines, "requires_python": None, "version": "0.11.2"}}
    values = H100 | torch("2.10.0") | {"package.vllm": "0.11.2", "python.requires": own}
    assert isinstance(judged("PKG023", values), Finding) is fires


# -- PKG014 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "version, cuda, carries, more, fires",
    [
        ("0.49.2", "13.2", ("12.8", "13.0"), {}, True),
        ("0.49.2", "13.0", ("12.8", "13.0"), {}, False),
        ("0.50.2", "13.4", ("12.8", "13.0", "13.2"), {}, False),
        ("0.50.2", "13.0", ("11.8", "12.8"), {}, True),
        ("0.49.2", "12.8", (), {}, True),
        ("0.49.2", "13.2", ("12.8", "13.0"), {"env.BNB_CUDA_VERSION": "130"}, False),
        ("0.49.2", "12.8", ("12.8", "13.0"), {"env.BNB_CUDA_VERSION": "121"}, True),
        ("0.49.2", "12.8", ("12.8",), {"env.BNB_CUDA_VERSION": ""}, False),
    ],
)
def test_which_library_bitsandbytes_finds(version, cuda, carries, more, fires):
    values = H100 | {"package.bitsandbytes": version, "torch.cuda": cuda} | more
    values |= {"extension.linked": {"bitsandbytes": row(None, None, carries=carries)}}
    found = judged("PKG014", values)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "warning"
        assert judged("PKG014", values | {"job.wants": ("qlora",)}).severity == "error"


def test_a_bitsandbytes_that_was_not_looked_into():
    assert judged("PKG014", H100 | {"package.bitsandbytes": "0.49.2"}) is None
    assert judged("PKG014", H100 | {"package.bitsandbytes": "0.49.2", "torch.cuda": None}) is None
    unseen = H100 | {"package.bitsandbytes": "0.49.2"}
    assert judged("PKG014", unseen, extension_linked="denied") is None
    asked = unseen | {"job.wants": ("bnb-4bit",)}
    assert isinstance(judged("PKG014", asked, extension_linked="denied"), UnknownFactError)


# -- what all share -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("part", "severity"), [({}, "error"), ({"part": "kite.rare"}, "warning")])
def test_what_only_a_part_imports_of_another_release_is_a_warning(monkeypatch, part, severity):
    row = {"a": "kite>=1,<=2", "b": "peft<1", "why": "kite imports peft.x", "source": "files of kite 1 to 2"}
    monkeypatch.setattr(packages, "_import_conflicts", lambda: [row | part])
    monkeypatch.setattr(packages, "names_in_import_conflicts", lambda: ("kite", "peft"))
    world = H100 | {"python.packages": 2, "package.kite": "1.5", "package.peft": "0.9"}
    found = judged("PKG048", world, contract(distribution="kite"))
    assert found.severity == severity and found.so.startswith(f"importing {part.get('part', 'kite')} fails")


@pytest.mark.parametrize(
    ("deepspeed", "torch_release", "want"),
    [("0.7.7", "2.1.0", ">0.8.1,<0.18.9"), ("0.7.7", "2.4.1", ">0.14.3"), ("0.19.0", "2.1.0", ">0.8.1,<0.18.9")],
)
def test_a_release_that_is_offered_works_with_that_torch(deepspeed, torch_release, want):
    world = {"package.deepspeed": deepspeed, "package.torch": torch_release, "python.packages": 2}
    found = judged("PKG048", H100 | world, contract(distribution="deepspeed"))
    assert [need.want for need in found.needs] == [want]
    for offered in ("0.14.4", "0.18.8", "0.19.8"):
        if versions.satisfies_specifier(offered, want):
            assert not packages.find_import_conflicts({"deepspeed": offered, "torch": torch_release})


@pytest.mark.parametrize(
    "text, release",
    [
        ("2.8.0", "2.8.0"),
        ("2.8.0+cu128", "2.8.0"),
        ("2.8.0+cpu", "2.8.0"),
        ("2.8.0+rocm6.4", "2.8.0"),
        ("2.8.0a0+5228986c39.nv25.6", None),
        ("2.8.0+gitabc", None),
        ("2.9.0.dev20250801+cu128", None),
        (None, None),
    ],
)
def test_which_torch_is_a_release(text, release):
    assert torch_compatibility.installed_torch_release(facts({"torch.version": text})) == release


def test_how_much_a_package_matters():
    assert torch_compatibility.package_severity(facts(H100), contract(), "vllm") == "warning"
    assert torch_compatibility.package_severity(facts(H100 | {"job.wants": ("VLLM",)}), contract(), "vllm") == "error"
    assert (
        torch_compatibility.package_severity(facts(H100 | {"job.wants": ("mamba",)}), contract(), "mamba-ssm")
        == "error"
    )
    conditional = contract(need("package.vllm", "*", when="gpus>1"))
    assert torch_compatibility.package_severity(facts(H100), conditional, "vllm") == "warning"
    assert torch_compatibility.package_severity(facts(H100 | {"gpu.count": 8}), conditional, "vllm") == "error"
    assert torch_compatibility.package_severity(facts(H100, gpu_count="gone"), conditional, "vllm") == "warning", (
        "unseen is no reason"
    )
