"""The pure part: whether, with what, and for which GPUs an extension is built; each answer with its reason."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.catalog import torch
from gpuready.extensions import assessment, build_environment, cuda_targets
from gpuready.extensions.assessment import BuildEnvironment
from gpuready.model import versions
from gpuready.system import LiveHost

TORCH = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
HERE = BuildEnvironment(
    "x86_64", "2.36", "/usr/local/cuda", "CUDA_HOME", "/usr/local/cuda/bin/nvcc", "13.0.88",
    compiler=("/usr/bin/g++",), compiler_version="12.2.0", torch="2.11.0+cu130", torch_cuda="13.0", torch_arch=TORCH,
    capabilities=("9.0",), cores=16, memory=128 << 30,
)  # fmt: skip


# -- architectures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "entries"),
    [
        ("9.0", ("9.0",)),
        ("8.0;9.0+PTX", ("8.0", "9.0+PTX")),
        ("9.0+PTX 8.0", ("8.0", "9.0+PTX")),
        ("9.0a", ("9.0a",)),
        ("9.0a+PTX;9.0", ("9.0", "9.0a+PTX")),
        ("Hopper", ("9.0+PTX",)),
        ("Ampere;Turing", ("7.5+PTX", "8.0", "8.6+PTX")),
        ("8.0;8.0+PTX;8.0", ("8.0+PTX",)),
        ("10.0f;12.0a", ("10.0f", "12.0a")),
        (" 8.6 ", ("8.6",)),
    ],
)
def test_a_written_list_is_taken_as_it_is_written(written, entries):
    found = cuda_targets.choose_targets(written, ("9.0",), "13.0", TORCH)
    assert found.entries == entries and found.source == "TORCH_CUDA_ARCH_LIST" and not found.dropped


@pytest.mark.parametrize("written", ["9", "9.0b", "Hoper", "sm_90", "8.0;;9.0", "8.0,9.0", "9.0+ptx", "a.b", "9.00"])
def test_what_is_no_architecture_is_named(written):
    with pytest.raises(ValueError, match="is not an architecture"):
        cuda_targets.choose_targets(written, (), "13.0")


def test_what_nvcc_or_torch_cannot_is_left_out_with_the_reason():
    found = cuda_targets.choose_targets("6.0;7.0;8.0;9.0", (), "13.0", TORCH)
    assert found.entries == ("8.0", "9.0")
    assert [one.partition(" (")[0] for one in found.dropped] == [
        "nvcc 13.0 does not compile for 6.0",
        "nvcc 13.0 does not compile for 7.0",
    ]
    older = cuda_targets.choose_targets("7.0;9.0", (), "12.8", TORCH)
    assert older.entries == ("9.0",) and "this torch has no code for 7.0" in older.dropped[0]
    with pytest.raises(ValueError, match="no architecture is left"):
        cuda_targets.choose_targets("Pascal", (), "13.0", TORCH)
    with pytest.raises(ValueError, match=r"knows no 8\.0a"):
        cuda_targets.choose_targets("8.0a", (), "13.0")


@pytest.mark.parametrize(
    ("capabilities", "cuda", "entries"),
    [
        (("9.0",), "13.0", ("9.0+PTX",)),
        (("9.0", "8.0", "9.0"), "12.4", ("8.0", "9.0+PTX")),
        (("12.0",), "12.4", ("9.0+PTX",)),  # the GPU is newer than nvcc: the driver compiles the PTX
        (("8.9",), "11.7", ("8.6+PTX",)),  # code of its kin runs on it
        (("10.0", "12.0"), "13.0", ("10.0", "12.0+PTX")),
    ],
)
def test_visible_gpus_decide_where_nothing_is_written(capabilities, cuda, entries):
    for written in ("", "native"):
        found = cuda_targets.choose_targets(written, capabilities, cuda)
        assert found.entries == entries and found.source == "the visible GPUs"


def test_a_gpu_that_nvcc_has_dropped():
    with pytest.raises(ValueError, match=r"nvcc 13\.0 does not compile for 7\.0"):
        cuda_targets.choose_targets("", ("7.0",), "13.0")


def test_without_a_gpu_everything_that_both_have_is_built_with_ptx_on_the_last():
    found = cuda_targets.choose_targets("", (), "13.0", TORCH)
    assert found.entries == ("7.5", "8.0", "8.6", "9.0", "10.0", "12.0+PTX")
    assert cuda_targets.choose_targets("", (), "12.4", TORCH).entries == ("7.5", "8.0", "8.6", "9.0+PTX")
    alone = cuda_targets.choose_targets("", (), "13.0")
    assert alone.entries[0] == "7.5" and alone.entries[-1] == "12.1+PTX" and "8.7" not in alone.entries


def test_a_release_that_the_catalogue_does_not_know():
    assert cuda_targets.choose_targets("9.0", (), "19.2", offered=("9.0", "10.0")).entries == ("9.0",)
    with pytest.raises(ValueError, match=r"not known what nvcc 19\.2"):
        cuda_targets.choose_targets("9.0", (), "19.2")


def test_flags_and_names():
    found = cuda_targets.BuildTargets(("8.0", "9.0a", "12.0+PTX"), "")
    assert found.nvcc_flags() == [
        "-gencode=arch=compute_80,code=sm_80",
        "-gencode=arch=compute_90a,code=sm_90a",
        "-gencode=arch=compute_120,code=sm_120",
        "-gencode=arch=compute_120,code=compute_120",
    ]


@given(st.lists(st.sampled_from(["7.0", "7.5", "8.0", "8.6+PTX", "9.0a", "9.0", "12.0", "Ada", "Hopper"]), min_size=1))
def test_any_list_is_in_order_once_each_and_buildable(words):
    try:
        found = cuda_targets.choose_targets(";".join(words), (), "13.0")
    except ValueError:
        assert set(words) == {"7.0"}
        return
    bare = [one.removesuffix("+PTX") for one in found.entries]
    assert len(set(bare)) == len(bare) and "7.0" not in bare
    assert bare == sorted(bare, key=lambda one: (versions.major_minor(one.rstrip("af")), one))


@given(st.text(max_size=12))
def test_any_text_is_a_list_or_a_sentence(text):
    try:
        found = torch.parse_arch_list(text)
    except ValueError as bad:
        assert "is not an architecture" in str(bad)
    else:
        assert found and all(found.values())


# -- availability -------------------------------------------------------------------------------------


@pytest.mark.parametrize("word", ["0", "", "false", "No", "off", "00", None, " 0 "])
def test_what_is_false(word):
    assert assessment.parse_env_switch("FORCE_CUDA", word) is False


@pytest.mark.parametrize("word", ["1", "true", "YES", "on", "2"])
def test_what_is_true(word):
    assert assessment.parse_env_switch("FORCE_CUDA", word) is True


def test_what_is_neither():
    with pytest.raises(ValueError, match="FORCE_CUDA='maybe' is neither yes nor no"):
        assessment.parse_env_switch("FORCE_CUDA", "maybe")


@pytest.mark.parametrize(
    ("variables", "gpus", "cuda", "cpu"),
    [
        ({}, (), False, True),
        ({}, ("9.0",), True, True),
        ({"FORCE_CUDA": "0"}, (), False, True),
        ({"FORCE_CUDA": "1"}, (), True, True),
        ({"FORCE_ONLY_CUDA": "1"}, (), True, False),
        ({"FORCE_ONLY_CUDA": "0"}, (), False, True),
        ({"FORCE_ONLY_CPU": "1"}, ("9.0",), False, True),
    ],
)
def test_availability(variables, gpus, cuda, cpu):
    ground = HERE.replace(variables=variables, capabilities=gpus)
    assert assessment.is_kind_wanted("cuda", ground)[0] is cuda
    assert assessment.is_kind_wanted("cpu", ground)[0] is cpu


def test_variables_that_contradict():
    view = assessment.assess_build("cuda", HERE.replace(variables={"FORCE_ONLY_CUDA": "1", "FORCE_ONLY_CPU": "1"}))
    assert not view.is_possible and "both set" in view.errors[0]


@pytest.mark.parametrize(
    ("nvcc", "torch", "level"),
    [
        ("13.0.88", "13.0", "note"),
        ("12.8", "13.0", "error"),
        ("12.10", "12.1", "warning"),  # 12.10 is not 12.1
        ("12.4.131", "12.6", "warning"),
        ("12.4", "", "note"),
    ],
)
def test_nvcc_against_torch(nvcc, torch, level):
    assert assessment.compare_cuda_versions(nvcc, torch).level == level


@pytest.mark.parametrize(("gcc", "cuda", "level"), [("12.2.0", "13.0", "note"), ("14.1", "12.4", "error"), ("4.8", "12.4", "error"), ("", "13.0", "note"), ("12", "19.9", "note")])  # fmt: skip
def test_the_host_compiler(gcc, cuda, level):
    assert assessment.check_host_compiler(gcc, cuda).level == level


@pytest.mark.parametrize(
    ("reported", "cores", "memory", "count"),
    [(None, 16, 128 << 30, 16), (None, 64, 8 << 30, 4), (None, 8, 1 << 30, 1), (None, 0, 0, 2), ("3", 64, 1 << 40, 3)],
)
def test_jobs(reported, cores, memory, count):
    found, why = assessment.choose_job_count(reported, cores, memory)
    assert found == count and why


@pytest.mark.parametrize("reported", ["0", "-1", "many", "1.5"])
def test_a_bad_number_of_jobs(reported):
    with pytest.raises(ValueError, match="MAX_JOBS"):
        assessment.choose_job_count(reported, 1, 1)
    assert not assessment.assess_build("cpu", HERE.replace(variables={"MAX_JOBS": reported})).is_possible


def test_all_of_it():
    view = assessment.assess_build("cuda", HERE)
    assert view.is_possible and view.targets.entries == ("9.0+PTX",) and view.jobs == 16
    assert assessment.assess_build("cpu", HERE).is_possible
    named = assessment.assess_build(
        "cuda", HERE.replace(capabilities=(), variables={"TORCH_CUDA_ARCH_LIST": "8.0"}), "9.0"
    )
    assert named.is_possible and named.targets.entries == ("9.0",) and named.targets.source == "the caller's list"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"nvcc": "", "home": ""}, "no CUDA toolkit was found"),
        ({"nvcc": "", "home": "/opt/x"}, "there is no /opt/x/bin/nvcc (the folder is named by CUDA_HOME)"),
        ({"cuda": "12.8"}, "the major differs"),
        ({"compiler": ()}, "there is no C++ compiler"),
        ({"compiler_version": "16.1"}, "nvcc 13.0.88 takes 6 to 15"),
        ({"variables": {"TORCH_CUDA_ARCH_LIST": "6.1"}}, "no architecture is left"),
    ],
)
def test_what_stands_in_the_way(change, said):
    view = assessment.assess_build("cuda", HERE.replace(**change))
    assert not view.is_possible and said in " ".join(view.errors)


def test_a_compiler_that_the_environment_names_is_not_judged():
    for variables in ({"NVCC_CCBIN": "g++-11"}, {"NVCC_APPEND_FLAGS": "-allow-unsupported-compiler"}):
        assert assessment.assess_build("cuda", HERE.replace(compiler_version="16.1", variables=variables)).is_possible


# -- CUDA_HOME, on machines made of files -------------------------------------------------------------


def machine(tmp_path, *homes):
    for home in homes:
        nvcc = tmp_path / home.lstrip("/") / "bin" / "nvcc"
        nvcc.parent.mkdir(parents=True)
        nvcc.write_text("#!/bin/sh\n")
        nvcc.chmod(0o755)
        settings = {"cuda": {"version": home.rpartition("-")[2]}}
        (nvcc.parent.parent / "version.json").write_text(json.dumps(settings))
    return tmp_path


@pytest.mark.parametrize(
    ("environ", "home", "by"),
    [
        ({"CUDA_HOME": "/opt/cuda-12.4", "CUDA_PATH": "/opt/cuda-12.6"}, "/opt/cuda-12.4", "CUDA_HOME"),
        ({"CUDA_PATH": "/opt/cuda-12.6/", "PATH": "/opt/cuda-12.4/bin"}, "/opt/cuda-12.6", "CUDA_PATH"),
        ({"PATH": "/nowhere:/opt/cuda-12.4/bin"}, "/opt/cuda-12.4", "nvcc on the path (/opt/cuda-12.4/bin/nvcc)"),
        ({"PATH": "/nowhere"}, "/usr/local/cuda", "/usr/local/cuda"),
    ],
)
def test_cuda_home_in_the_order_of_torch(tmp_path, environ, home, by):
    root = machine(tmp_path, "/opt/cuda-12.4", "/opt/cuda-12.6", "/usr/local/cuda-13.0")
    (root / "usr/local/cuda").symlink_to("cuda-13.0")
    ground = build_environment.read_build_environment(LiveHost(str(root), environ), "cuda")
    assert (ground.home, ground.home_by) == (home, by) and ground.nvcc == f"{home}/bin/nvcc"
    assert ground.cuda == {"/usr/local/cuda": "13.0"}.get(home, home.rpartition("-")[2])


def test_a_cuda_home_that_leads_nowhere(tmp_path):
    ground = build_environment.read_build_environment(
        LiveHost(str(tmp_path), {"CUDA_HOME": "/opt/gone", "PATH": ""}), "cuda"
    )
    assert (ground.home, ground.nvcc) == ("/opt/gone", "")
    assert "there is no /opt/gone/bin/nvcc" in " ".join(assessment.assess_build("cuda", ground).errors)
