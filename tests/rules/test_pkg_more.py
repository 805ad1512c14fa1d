"""Packages that do not go together, with torch, with each other, or with their names."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarmac import contracts, rules, versions
from tarmac.contracts.sharing import clashes, together
from tarmac.model import NOT_STATED, Fact, Facts, Finding, Unknown
from tarmac.rules import fits
from tarmac.rules.pkg import contracts_cannot_share_environment as sharing
from tests.rules.worlds import H100, contract, facts, judged, need, outcome

HOST = H100 | {
    "env.names": (),
    "torch.abi": True,
    "extension.linked": {},
    "library.shadowed": {},
    "python.shadowed": (),
    "python.requires": {},
    "python.kind": "venv",
    "libcudnn.path": None,
    "libnccl.path": None,
}
"""The healthy machine with all that these rules look at."""

CODES = [f"PKG{n:03}" for n in range(8, 24)]
ASKS = {"job.wants": ("flash-attn", "xformers", "vllm", "bnb-4bit", "torch-compile")}


def row(cudart="12", abi="cxx11", missing=(), **more):
    return {"file": "/site/x.so", "cudart": cudart, "torch": True, "abi": abi, "missing": missing} | more


def linked(**rows):
    names = {name.replace("_", "-"): one for name, one in rows.items()}
    return {f"package.{name}": "1.0" for name in names} | {"extension.linked": names}


def torch(version, cuda=None):
    return {"torch.version": version, "package.torch": version} | ({"torch.cuda": cuda} if cuda else {})


@pytest.mark.parametrize("code", CODES)
def test_a_healthy_machine_hears_nothing(code):
    fit = {
        "package.torchvision": "0.23.0+cu128",
        "package.torchaudio": "2.8.0",
        "package.triton": "3.4.0",
        "package.xformers": "0.0.32.post2",
        "package.vllm": "0.10.2",
        "package.flash-attn": "2.8.3",
        "package.bitsandbytes": "0.49.2",
        "package.numpy": "2.3.1",
        "package.nvidia-cublas-cu12": "12.8.4.1",
        "package.nvidia-nccl-cu12": "2.27.3",
        "extension.linked": {
            **{name: row() for name in ("torchvision", "torchaudio", "xformers", "vllm", "flash-attn")},
            "bitsandbytes": row(None, None, carries=("11.8", "12.4", "12.8")),
        },
    }
    for job in ({}, ASKS):
        agreed = contract(need("cudnn.version", ">=9.1"), need("nccl.version", "*"))
        assert judged(code, HOST | fit | job, agreed) is None


@pytest.mark.parametrize("code", CODES)
def test_a_machine_without_packages_hears_nothing(code):
    bare = {"python.packages": 0, "torch.version": None, "torch.cuda": None, "torch.build": None}
    assert judged(code, HOST | bare | {"package.torch": None, "torch.abi": None}) is None


# -- PKG008 -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "a, b, both",
    [
        ("==4.51.3", "==5.20.1", False),
        ("==4.51.3", ">=4.50,<5", True),
        (">=2.2.0,<=2.5.1", ">=2.6", False),
        (">=2.2.0,<=2.5.1", ">=2.5.1", True),
        (">2.5", "<2.5.1", True),
        (">2.5", "<=2.5", False),
        (">=2.5", "<2.5", False),
        ("<3", "<2", True),
        ("!=1.0", "==1.0", False),
        ("!=1.0", ">=1.0", True),
        ("==1.*", "==1.4.2", True),
        ("==1.*", ">=2", False),
        ("~=1.4", ">=1.9,<2", True),
        ("~=1.4.2", ">=1.5", False),
        ("==1.0|==2.0", "==2.0|==3.0", True),
        ("==1.0|==2.0", "==3.0", False),
        (">=0.33.post2", "==0.33.post2", True),
        ("cuda", "==1", True),
    ],
)
def test_two_pins_on_one_package(a, b, both):
    assert together("demo", a, b) is both and together("demo", b, a) is both


RELEASES = st.tuples(*[st.integers(0, 3)] * 2).map(lambda parts: ".".join(map(str, parts)))
CLAUSES = st.tuples(st.sampled_from([">=", "<=", ">", "<", "==", "!="]), RELEASES).map("".join)
PINS = st.lists(CLAUSES, min_size=1, max_size=3).map(",".join)


@settings(max_examples=300, deadline=None)
@given(PINS, PINS, st.tuples(*[st.integers(0, 4)] * 3).map(lambda parts: ".".join(map(str, parts))))
def test_pins_that_share_a_version_are_never_called_contradictory(a, b, version):
    if versions.satisfies(version, a) and versions.satisfies(version, b):
        assert together("demo", a, b)


def test_of_torch_only_releases_that_exist():
    assert not together("torch", ">=2.5.2", "<2.6")
    assert together("demo", ">=2.5.2", "<2.6")
    assert together("torch", ">=9.0", ">=9.1,<10"), "of what comes after the newest nobody knows"
    assert together("torch", "<1.9", ">=1.8")


def test_contracts_that_cannot_share():
    one = contract(need("package.torch", ">=2.2.0,<=2.5.1", cite="requirements.txt:11"), framework="one")
    two = contract(need("package.torch", ">=2.9", cite="METADATA:7"), framework="two")
    others = {"contract.others": sharing.others(one, [one, two])}
    found = judged("PKG008", HOST | others, one)
    assert found.says == "no environment holds both one 1.0 and two 1.0: torch"
    assert [n.cite for n in found.needs] == ["requirements.txt:11", "two 1.0: METADATA:7"]
    assert [f.key for f in found.found] == ["package.torch"]
    blind = judged("PKG008", {"gpu.count": 1} | others, one)
    assert [(f.key, f.value, f.source) for f in blind.found] == [
        ("package.torch", "two 1.0: >=2.9", "METADATA:7")
    ]
    assert [(n.want, n.cite) for n in blind.needs] == [(">=2.2.0,<=2.5.1", "requirements.txt:11")]
    assert clashes([one, two])[0][:2] == ("one 1.0", "two 1.0")
    assert clashes([one, one, contract()]) == []


def test_only_what_always_holds_is_compared():
    one = contract(need("package.torch", "==2.5.1"), need("python.version", "<3.10"), framework="one")
    soft = contract(need("package.torch", ">=2.9", level="recommended"), framework="two")
    when = contract(need("package.torch", ">=2.9", when="wants=fp8"), framework="two")
    any_ = contract(need("package.torch", "*"), framework="two")
    assert clashes([one, soft]) == clashes([one, when]) == clashes([one, any_]) == []
    newer = contract(need("python.version", ">=3.11"), framework="two")
    assert clashes([one, newer])[0][2][0] == "python.version"


def test_of_many_clashes_the_first_are_shown_and_the_rest_counted():
    one = contract(*(need(f"package.p{i}", "==1") for i in range(9)), framework="one")
    two = contract(*(need(f"package.p{i}", "==2") for i in range(9)), framework="two")
    found = judged("PKG008", HOST | {"contract.others": sharing.others(one, [one, two])}, one)
    assert found.says.endswith(": p0, p1, p2 and 6 more")
    assert len(found.found) == len(found.needs) == 3


# -- PKG024 -------------------------------------------------------------------------------------------


def test_a_contract_that_no_environment_can_hold():
    agreed = contracts.load("roll", None, "torch260-vllm")
    found = judged("PKG024", HOST, agreed)
    assert found.severity == "error" and "opentelemetry-sdk >=1.30 and <1.27" in found.says
    assert [n.want for n in found.needs] == [">=1.30", "<1.27"]
    assert "ray" in found.needs[0].cite and "vllm" in found.needs[1].cite
    assert judged("PKG024", HOST, contracts.load("roll", None, "torch280-vllm")) is None


def test_only_required_needs_in_force_contradict():
    low = need("package.rye", "<2")
    assert judged("PKG024", HOST, contract(low, need("package.rye", ">=2", level="recommended"))) is None
    assert judged("PKG024", HOST, contract(low, need("package.rye", ">=1"))) is None
    hanging = contract(low, need("package.rye", ">=2", when="wants=fp8"))
    assert judged("PKG024", HOST | {"job.wants": ()}, hanging) is None
    assert isinstance(judged("PKG024", HOST | {"job.wants": ("fp8",)}, hanging), Finding)
    assert isinstance(judged("PKG024", HOST, hanging, job_wants="not read"), Unknown)


def test_alone_nothing_is_compared():
    assert judged("PKG008", HOST) is None
    assert isinstance(judged("PKG008", HOST, contract_others="not read"), Unknown)


def test_shipped_contracts_and_what_is_known_of_them():
    colossal, axolotl = contracts.load("colossalai"), contracts.load("axolotl")
    named = {clash[0] for _, _, clash in clashes([colossal, axolotl])}
    assert {"torch", "transformers"} <= named
    assert clashes([colossal, colossal]) == []


# -- PKG009 -------------------------------------------------------------------------------------------

ROLL = contract(
    need("package.mcore-adapter", ">=0.10.0.dev0", level="recommended"), framework="roll", distribution="roll"
)


def test_a_web_framework_in_the_place_of_roll():
    assert judged("PKG009", HOST | {"package.roll": "0.13.4"}, ROLL).severity == "error"
    assert judged("PKG009", HOST | {"package.roll": "0.3.0"}, ROLL) is None
    web = {"roll": {"requires_dist": ("autoroutes==0.3.4", "httptools"), "version": "0.3.0"}}
    by_metadata = judged("PKG009", HOST | {"package.roll": "0.3.0", "python.requires": web}, ROLL)
    assert by_metadata.severity == "error" and by_metadata.fix[0].run[:3] == ("uv", "pip", "uninstall")
    real = {"roll": {"requires_dist": ("ray", "torch"), "version": "0.13.4"}}
    assert isinstance(
        judged("PKG009", HOST | {"package.roll": "0.13.4", "python.requires": real}, ROLL), Finding
    )


def test_who_does_not_name_it_does_not_mind():
    assert judged("PKG009", HOST | {"package.roll": "0.13.4", "package.mcore-adapter": "0.0.1"}) is None


def test_the_adapter_of_a_stranger():
    found = judged("PKG009", HOST | {"package.roll": "0.3.0", "package.mcore-adapter": "0.0.1"}, ROLL)
    assert found.severity == "warning" and "mcore-adapter 0.0.1" in found.says
    real = HOST | {"package.roll": "0.3.0", "package.mcore-adapter": "0.10.0.dev0"}
    assert judged("PKG009", real, ROLL) is None


def test_a_nightly_that_stands_still():
    agreed = contract(framework="colossalai", distribution="colossalai")
    assert judged("PKG009", HOST | {"package.colossalai-nightly": "2025.7.12"}, agreed).severity == "warning"


def test_a_placeholder():
    agreed = contract(need("package.flash-attn-3", "*", when="wants=flash-attn-3"))
    assert judged("PKG009", HOST | {"package.flash-attn-3": "3.0.0b1"}, agreed) is None
    empty = HOST | {"package.flash-attn-3": "0.0.0"}
    assert judged("PKG009", empty, agreed).severity == "warning"
    assert judged("PKG009", empty | {"job.wants": ("flash-attn-3",)}, agreed).severity == "error"


def test_two_modules_of_one_name():
    both = HOST | {"package.pynvml": "11.5.3", "package.nvidia-ml-py": "13.580.65"}
    assert judged("PKG009", both).severity == "info"
    assert judged("PKG009", both | {"package.pynvml": "12.0.0"}) is None
    assert judged("PKG009", HOST | {"package.pynvml": "11.5.3"}) is None


# -- PKG010, PKG011 -----------------------------------------------------------------------------------


def test_another_runtime_that_is_nowhere():
    odd = HOST | linked(xformers=row("12", missing=("libcudart.so.12",))) | {"torch.cuda": "13.0"}
    assert judged("PKG010", odd).severity == "warning", "nobody asks for it"
    asked = judged("PKG010", odd | {"job.wants": ("xformers",)})
    assert asked.severity == "error" and "xformers (CUDA 12)" in asked.says
    required = judged("PKG010", odd, contract(need("package.xformers", "*")))
    assert required.severity == "warning", "it imports without its kernels, and nothing asks for these"
    assert "/site/x.so" in required.needs[0].cite
    grave = HOST | linked(vllm=row("12", missing=("libcudart.so.12",))) | {"torch.cuda": "13.0"}
    assert judged("PKG010", grave, contract(need("package.vllm", "*"))).severity == "error"


def test_another_runtime_that_is_found_loads_a_second_cuda():
    odd = HOST | linked(vllm=row("12")) | {"torch.cuda": "13.0", "job.wants": ("vllm",)}
    assert judged("PKG010", odd).severity == "warning"


def test_packages_that_weigh_the_same_for_everybody():
    thirteen = {"torch.cuda": "13.0"}
    assert judged("PKG010", HOST | linked(torchvision=row("12")) | thirteen).severity == "error"
    ao = linked(torchao=row("12", missing=("libcudart.so.12",))) | thirteen
    assert judged("PKG010", HOST | ao | {"job.wants": ("torchao",)}).severity == "warning"


def test_a_library_that_is_missing_tells_as_much_as_the_runtime():
    odd = linked(transformer_engine=row(None, missing=("libcublas.so.12", "libcufft.so.11")))
    assert "CUDA 12" in judged("PKG010", HOST | odd | {"torch.cuda": "13.0"}).says
    assert judged("PKG010", HOST | odd) is None
    other = linked(apex=row(None, missing=("libfoo.so.1",)))
    assert judged("PKG010", HOST | other | {"torch.cuda": "13.0"}) is None


def test_bitsandbytes_is_no_business_of_this_rule():
    odd = linked(bitsandbytes=row("12"), xformers=row("13")) | {"torch.cuda": "13.0"}
    assert judged("PKG010", HOST | odd) is None


def test_unseen_links_hold_back_only_what_needs_them():
    dark = {k: v for k, v in HOST.items() if k != "extension.linked"}
    for code in ("PKG010", "PKG011"):
        assert judged(code, dark) is None
        assert judged(code, dark | {"package.vllm": "0.10.2"}) is None, "it would be a warning"
        asked = dark | {"package.vllm": "0.10.2", "job.wants": ("vllm",)}
        assert isinstance(judged(code, asked), Unknown)
        required = contract(need("package.vllm", "*"))
        assert isinstance(judged(code, dark | {"package.vllm": "0.10.2"}, required), Unknown)


def test_a_package_of_which_only_the_version_is_unknown_is_there():
    twice = [*facts(HOST | linked(vllm=row("13"))), Fact("package.vllm", None, gap="listed twice")]
    assert list(fits.linked(Facts(twice), contract())) == ["vllm"]
    assert fits.linked(facts(HOST), contract()) == {}


@pytest.mark.parametrize(
    "torch_abi, own, fires", [(True, "old", True), (False, "cxx11", True), (True, "cxx11", False)]
)
def test_the_spelling_of_strings(torch_abi, own, fires):
    odd = HOST | linked(flash_attn=row(abi=own)) | {"torch.abi": torch_abi, "job.wants": ("flash-attn",)}
    found = judged("PKG011", odd)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "error" and "--no-build-isolation" in found.fix[0].run


def test_an_extension_without_a_spelling_or_without_torch():
    for one in (row(abi=None), row(abi="old", torch=False)):
        assert judged("PKG011", HOST | linked(xformers=one)) is None
    asked = HOST | linked(vllm=row()) | {"job.wants": ("vllm",)}
    assert isinstance(judged("PKG011", asked, torch_abi="no symbols"), Unknown)
    assert judged("PKG011", HOST | linked(vllm=row()), torch_abi="no symbols") is None


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
    values = HOST | FLASH | torch(version, cuda) | {"package.flash-attn": f"2.8.3+{tag}", "torch.abi": abi}
    found = judged("PKG012", values)
    assert (found is None) is (wrong is None)
    if found:
        assert found.severity == "error" and found.says.endswith(f"made for another {wrong}")


def test_a_version_that_does_not_say_is_not_judged():
    assert (
        judged("PKG012", HOST | FLASH | torch("2.12.0+cu130", "13.0") | {"package.flash-attn": "2.8.3"})
        is None
    )


def test_not_asked_for_it_is_a_warning():
    odd = HOST | torch("2.9.1+cu128") | {"package.flash-attn": "2.8.3+cu12torch2.8cxx11abitrue"}
    assert judged("PKG012", odd).severity == "warning"


def test_a_flash_attn_that_would_have_to_be_compiled():
    agreed = contract(need("package.flash-attn", "==2.8.3", when="wants=flash-attn"))
    newer = HOST | torch("2.9.1+cu128")
    found = judged("PKG012", newer | FLASH, agreed)
    assert found.severity == "warning" and "2.8.0" in found.fix[0].does
    assert judged("PKG012", newer, agreed) is None, "nobody wants it"
    assert judged("PKG012", HOST | FLASH, agreed) is None, "torch 2.8 has its wheel"
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
    values = HOST | torch(of) | {f"package.{package}": version, "job.wants": (package,)}
    found = judged(code, values)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "error" and found.needs[0].key == "package.torch"


def test_the_fix_is_the_release_of_this_torch_or_the_torch_of_this_release():
    found = judged("PKG013", HOST | torch("2.9.1+cu128") | {"package.xformers": "0.0.32.post2"})
    assert found.severity == "warning"
    assert [step.run[-1] for step in found.fix] == ["xformers==0.0.33.post2", "torch==2.8.0"]
    agreed = contract(need("package.torch", ">=2.9"))
    narrow = judged("PKG013", HOST | torch("2.9.1+cu128") | {"package.xformers": "0.0.32.post2"}, agreed)
    assert [step.run[-1] for step in narrow.fix] == ["xformers==0.0.33.post2"]


def test_in_conda_packages_are_built_anew_for_each_torch():
    odd = (
        HOST
        | torch("2.9.1")
        | {"package.xformers": "0.0.32.post2", "job.wants": ("xformers",), "python.kind": "conda"}
    )
    assert judged("PKG013", odd).severity == "warning"
    vision = HOST | torch("2.9.1") | {"package.torchvision": "0.21.0", "python.kind": "conda"}
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
    values = HOST | torch("2.10.0") | {"package.vllm": "0.11.2", "python.requires": own}
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
    values = HOST | {"package.bitsandbytes": version, "torch.cuda": cuda} | more
    values |= {"extension.linked": {"bitsandbytes": row(None, None, carries=carries)}}
    found = judged("PKG014", values)
    assert isinstance(found, Finding) is fires
    if fires:
        assert found.severity == "warning"
        assert judged("PKG014", values | {"job.wants": ("qlora",)}).severity == "error"


def test_a_bitsandbytes_that_was_not_looked_into():
    assert judged("PKG014", HOST | {"package.bitsandbytes": "0.49.2"}) is None
    assert judged("PKG014", HOST | {"package.bitsandbytes": "0.49.2", "torch.cuda": None}) is None
    unseen = HOST | {"package.bitsandbytes": "0.49.2"}
    assert judged("PKG014", unseen, extension_linked="denied") is None
    asked = unseen | {"job.wants": ("bnb-4bit",)}
    assert isinstance(judged("PKG014", asked, extension_linked="denied"), Unknown)


# -- PKG015, PKG016 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("code, key", [("PKG015", "cudnn.version"), ("PKG016", "nccl.version")])
def test_a_library_below_what_is_asked(code, key):
    old = HOST | {key: "1.0"}
    assert judged(code, old) is None
    assert judged(code, old, contract(need(key, ">=2.0"))).severity == "error"
    assert judged(code, old, contract(need(key, ">=2.0", level="recommended"))).severity == "warning"
    assert judged(code, old, contract(need(key, ">=2.0", when="gpus>1"))) is None
    assert isinstance(
        judged(code, HOST, contract(need(key, "*")), **{key.replace(".", "_"): "gone"}), Unknown
    )


def test_without_a_torch_for_cuda_there_is_neither():
    bare = HOST | {"nccl.version": None, "torch.cuda": None}
    assert judged("PKG016", bare, contract(need("nccl.version", "*"))) is None
    assert (
        "there is no NCCL"
        in judged("PKG016", bare | {"torch.cuda": "12.8"}, contract(need("nccl.version", "*"))).says
    )


# -- PKG017 -------------------------------------------------------------------------------------------


def shadow(taken, because="LD_LIBRARY_PATH, for libtorch_cuda.so"):
    return {"taken": taken, "instead_of": "/site/nvidia/lib/own.so", "because": because}


def test_a_library_from_elsewhere():
    values = HOST | {"library.shadowed": {"libnccl.so.2": shadow("/usr/lib/libnccl.so.2")}}
    found = judged("PKG017", values)
    assert found.severity == "warning" and found.fix[0].does == "take /usr/lib out of LD_LIBRARY_PATH"
    assert judged("PKG017", values | {"torch.cuda": None}) is None


@pytest.mark.parametrize(
    "path, severity",
    [
        ("/usr/local/cuda-12.1/lib64/libnvJitLink.so.12", "error"),
        ("/usr/local/cuda-12.8/lib64/libnvJitLink.so.12", "warning"),
        ("/usr/local/cuda-12.9/targets/x86_64-linux/lib/libnvJitLink.so.12", "warning"),
        ("/usr/local/cuda/lib64/libnvJitLink.so.12", "warning"),
    ],
)
def test_an_older_nvjitlink_cannot_be_linked(path, severity):
    assert (
        judged("PKG017", HOST | {"library.shadowed": {"libnvJitLink.so.12": shadow(path)}}).severity
        == severity
    )


# -- PKG018, PKG019, PKG021 ---------------------------------------------------------------------------

COMPILES = {"job.wants": ("torch-compile",)}


@pytest.mark.parametrize(
    "of, triton, severity",
    [
        ("2.8.0+cu128", "3.4.0", None),
        ("2.8.0+cu128", "3.1.0", "error"),
        ("2.15.0", "3.9.2", None),
        ("2.15.0", "3.8.1", "error"),
        ("2.8.0+cu128", None, "error"),
        ("2.8.0+cu128", "3.4.0+git5389ed79", None),
        ("2.9.0.dev20250801+cu128", "3.1.0", None),
        ("99.0", "3.1.0", None),
    ],
)
def test_the_triton_of_torch(of, triton, severity):
    values = HOST | torch(of) | {"package.triton": triton}
    found = judged("PKG018", values | COMPILES)
    assert (found.severity if found else None) == severity
    quiet = judged("PKG018", values)
    assert (quiet.severity if quiet else None) == ("warning" if severity and triton else None)


def test_triton_by_another_name_or_for_another_platform():
    odd = HOST | COMPILES | {"package.triton": None}
    assert judged("PKG018", odd | {"package.pytorch-triton": "3.4.0"}) is None
    assert judged("PKG018", odd | {"torch.build": "cpu"}) is None


@pytest.mark.parametrize(
    "of, vision, audio, severity",
    [
        ("2.8.0+cu128", "0.23.0+cu128", "2.8.0", None),
        ("2.8.0+cu128", "0.21.0", None, "error"),
        ("2.5.1", "0.20.0", None, "warning"),
        ("2.8.0", None, "2.6.0", "warning"),
        ("2.5.1", None, "2.5.0", "warning"),
        ("2.14.0", "0.29.2", None, None),
        ("2.14.1", "0.29.0", None, "warning"),
        ("2.13.0", "0.29.2", None, "error"),
        ("2.13.0", None, "2.9.0", None),
        ("2.8.0", "0.99.0", "9.9", None),
        ("2.8.0", "0.22.0a0", None, None),
        ("2.8.0a0+nv25.5", "0.21.0", None, None),
    ],
)
def test_pairs(of, vision, audio, severity):
    values = HOST | torch(of) | {"package.torchvision": vision, "package.torchaudio": audio}
    found = judged("PKG019", values)
    assert (found.severity if found else None) == severity


def test_the_pair_is_installed_for_the_same_cuda():
    found = judged("PKG019", HOST | {"package.torchvision": "0.21.0", "package.torchaudio": None})
    assert found.fix[0].run[-3:] == ("--torch-backend", "cu128", "torchvision==0.23.0")


@pytest.mark.parametrize(
    "of, numpy, fires",
    [
        ("2.2.2", "2.0.1", True),
        ("2.2.2", "1.26.4", False),
        ("2.3.0", "2.0.1", False),
        ("2.2.0a0+81ea7a4", "2.1", False),
    ],
)
def test_numpy_two(of, numpy, fires):
    assert isinstance(judged("PKG021", HOST | torch(of) | {"package.numpy": numpy}), Finding) is fires


# -- PKG020 -------------------------------------------------------------------------------------------

NAMES = contract(
    need("package.transformers", ">=4"),
    need("package.flash-attn", "*", level="optional"),
    distribution="demo",
)


@pytest.mark.parametrize(
    "path, severity",
    [
        ("/w/torch.py", "error"),
        ("/w/numpy", "error"),
        ("/w/transformers.py", "error"),
        ("/w/transformers", "warning"),
        ("/w/flash_attn", "warning"),
        ("/w/random.py", "warning"),
        ("/w/demo", None),
        ("/w/test", None),
        ("/w/pandas.py", None),
    ],
)
def test_what_hides_what(path, severity):
    found = judged("PKG020", HOST | {"python.shadowed": (path,)}, NAMES)
    assert (found.severity if found else None) == severity


def test_every_file_is_named():
    found = judged(
        "PKG020", HOST | {"python.shadowed": ("/w/random.py", "/w/torch.py", "/w/pandas.py")}, NAMES
    )
    assert found.severity == "error" and "random and torch" in found.says and len(found.fix) == 2


# -- PKG022 -------------------------------------------------------------------------------------------


def test_leftovers_take_room():
    found = judged("PKG022", HOST | {"torch.cuda": "13.0", "package.nvidia-cublas-cu12": "12.8.4.1"})
    assert found.severity == "info" and found.fix[0].run[-1] == "nvidia-cublas-cu12"


def test_two_that_write_one_file():
    both = {"torch.cuda": "13.0", "package.nvidia-nccl-cu12": "2.27.3", "package.nvidia-nccl-cu13": "2.28.3"}
    found = judged("PKG022", HOST | both)
    assert found.severity == "warning" and found.fix[1].run[-1] == "nvidia-nccl-cu13"
    apart = {"torch.cuda": "13.0", "package.nvidia-cublas-cu12": "1", "package.nvidia-cublas-cu13": "1"}
    assert judged("PKG022", HOST | apart).severity == "info"


@pytest.mark.parametrize(
    "name", ["nvidia-ml-py", "nvidia-cublas", "nvidia-modelopt", "nvidia-cuda-runtime-cu12"]
)
def test_packages_that_are_no_leftovers(name):
    assert judged("PKG022", HOST | {f"package.{name}": "1.0"}) is None


# -- what all share -----------------------------------------------------------------------------------


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
    assert fits.release(facts({"torch.version": text})) == release


def test_how_much_a_package_matters():
    assert fits.weight(facts(HOST), contract(), "vllm") == "warning"
    assert fits.weight(facts(HOST | {"job.wants": ("VLLM",)}), contract(), "vllm") == "error"
    assert fits.weight(facts(HOST | {"job.wants": ("mamba",)}), contract(), "mamba-ssm") == "error"
    conditional = contract(need("package.vllm", "*", when="gpus>1"))
    assert fits.weight(facts(HOST), conditional, "vllm") == "warning"
    assert fits.weight(facts(HOST | {"gpu.count": 8}), conditional, "vllm") == "error"
    assert fits.weight(facts(HOST, gpu_count="gone"), conditional, "vllm") == "warning", "unseen is no reason"


def test_what_is_not_stated_stays_open():
    stated = Facts([Fact(k, H100[k]) for k in H100 if k.startswith("gpu.")], "h100", NOT_STATED)
    for code in CODES:
        found = outcome(rules.rule(code), stated, contract())
        assert found is None or (isinstance(found, Unknown) and found.fact.gap == NOT_STATED)
