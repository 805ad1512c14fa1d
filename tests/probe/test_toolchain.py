"""The CUDA toolkit and the compilers, chosen as a build would choose them."""

from __future__ import annotations

import pytest

from gpuready.probe import compilers, toolchain
from gpuready.probe.target_environment import TargetEnvironment
from gpuready.probe.toolchain import parse_nvcc_version
from gpuready.system import AccessError, RunResult
from tests.probe.fakes import Fake, by_key

NVCC = """\
nvcc: NVIDIA (R) Cuda compiler driver
Copyright (c) 2005-2025 NVIDIA Corporation
Built on Wed_Aug_20_01:58:59_PM_PDT_2025
Cuda compilation tools, release 13.0, V13.0.88
Build cuda_13.0.r13.0/compiler.36424714_0
"""
HEADER = "/* CUDA */\n#define __cuda_cuda_h__\n/**\n * CUDA API version number\n */\n#define CUDA_VERSION 12080\n"


def look(files, who=None, **requested):
    return by_key(toolchain.probe_toolchain(Fake(files, **requested), who))


def kit(path, version="12.8.1"):
    return {
        f"{path}/version.json": f'{{"cuda": {{"name": "CUDA SDK", "version": "{version}"}}}}',
        f"{path}/bin/nvcc": "",
    }


def test_nothing():
    facts = look({"/usr/local/bin/x": ""})
    assert set(facts) == set(toolchain.KEYS)
    assert all(f.value in (None, ()) and not f.gap for f in facts.values())


def test_cuda_home_first():
    files = kit("/opt/cuda-12.4", "12.4.0") | kit("/usr/local/cuda", "13.0.0")
    facts = look(
        files, env={"CUDA_HOME": "/opt/cuda-12.4/", "CUDA_PATH": "/x"}, path={"nvcc": "/usr/local/cuda/bin/nvcc"}
    )
    assert facts["toolkit.path"].value == "/opt/cuda-12.4"
    assert facts["toolkit.version"].value == "12.4.0"
    assert facts["toolkit.nvcc"].value == "/opt/cuda-12.4/bin/nvcc"
    assert facts["toolkit.chosen_by"].value == "CUDA_HOME"


def test_then_cuda_path_then_the_path_then_the_usual_place():
    files = kit("/usr/local/cuda") | kit("/a") | kit("/b")
    assert look(files, env={"CUDA_PATH": "/a"}, path={"nvcc": "/b/bin/nvcc"})["toolkit.path"].value == "/a"
    assert look(files, path={"nvcc": "/b/bin/nvcc"})["toolkit.path"].value == "/b"
    assert look(files)["toolkit.path"].value == "/usr/local/cuda"


def test_a_wrapper_on_the_path_is_taken_as_torch_takes_it():
    host = Fake({"/usr/local/bin/nvcc": "#!/bin/sh\n"}, path={"nvcc": "/usr/local/bin/nvcc"},
                runs={"/usr/local/bin/nvcc --version": NVCC})  # fmt: skip
    facts = by_key(toolchain.probe_toolchain(host))
    assert facts["toolkit.path"].value == "/usr/local"
    assert facts["toolkit.version"].value == "13.0.88"


def test_a_wrapper_that_names_its_toolkit_is_not_started():
    files = kit("/usr/lib/nvidia-cuda-toolkit", "12.4.0") | {
        "/usr/bin/nvcc": '#!/bin/sh\nexec "/usr/lib/nvidia-cuda-toolkit/bin/nvcc" "$@"\n'
    }
    host = Fake(files, path={"nvcc": "/usr/bin/nvcc"})
    facts = by_key(toolchain.probe_toolchain(host))
    assert (facts["toolkit.path"].value, facts["toolkit.version"].value) == ("/usr", "12.4.0")
    assert facts["toolkit.version"].source == "/usr/lib/nvidia-cuda-toolkit/version.json"
    assert not host.ran()


def test_a_stale_variable_is_kept_and_told():
    """D23: torch takes what CUDA_HOME says, whether it is there or not."""
    facts = look(kit("/usr/local/cuda"), env={"CUDA_HOME": "/usr/local/cuda-11.8"})
    assert facts["toolkit.path"].value == "/usr/local/cuda-11.8"
    assert facts["toolkit.home_missing"].value == "/usr/local/cuda-11.8"
    assert facts["toolkit.home_missing"].source == "CUDA_HOME"
    assert facts["toolkit.nvcc"].value is None
    assert facts["toolkit.version"].value is None
    assert [row["path"] for row in facts["toolkit.others"].value] == ["/usr/local/cuda"]


def test_a_link_that_leads_nowhere():
    facts = look({"/usr/local/bin/x": ""}, links={"/usr/local/cuda": "/etc/alternatives/cuda"})
    assert facts["toolkit.path"].value is None
    assert facts["toolkit.home_missing"].value == "/usr/local/cuda"
    assert facts["toolkit.others"].value[0]["found_by"] == "a link that leads nowhere"


def test_three_toolkits_each_once():
    files = (
        kit("/usr/local/cuda-11.8", "11.8.0") | kit("/usr/local/cuda-12.4", "12.4.1") | {"/usr/local/cuda-13.0/x": ""}
    )
    facts = look(files, links={"/usr/local/cuda": "cuda-12.4"})
    rows = {row["path"]: row["version"] for row in facts["toolkit.others"].value}
    assert rows == {"/usr/local/cuda": "12.4.1", "/usr/local/cuda-11.8": "11.8.0", "/usr/local/cuda-13.0": "13.0"}


@pytest.mark.parametrize(
    ("file", "text", "version"),
    [
        ("version.json", '{"cuda": {"version": "12.4.99"}}', "12.4.99"),
        ("version.txt", "CUDA Version 10.2.89\n", "10.2.89"),
        ("include/cuda.h", HEADER, "12.8"),
        ("targets/x86_64-linux/include/cuda.h", HEADER, "12.8"),
    ],
)
def test_the_files_that_tell(file, text, version):
    host = Fake({f"/usr/local/cuda/{file}": text, "/usr/local/cuda/bin/nvcc": ""})
    facts = by_key(toolchain.probe_toolchain(host))
    assert facts["toolkit.version"].value == version
    assert facts["toolkit.version"].source == f"/usr/local/cuda/{file}"
    assert not host.ran(), "a file tells; no command is needed"


@pytest.mark.parametrize("text", ["{", "[]", '{"cuda": 7}', '{"cuda": {"version": null}}', "[" * 9000])
def test_a_broken_version_file_is_passed_over(text):
    files = {"/usr/local/cuda/version.json": text, "/usr/local/cuda/include/cuda.h": HEADER}
    assert look(files)["toolkit.version"].value == "12.8"


@pytest.mark.parametrize(
    ("ran", "gap"),
    [
        (RunResult((), None, end="deadline"), "deadline"),
        (RunResult((), -11, end="signal SEGV"), "signal SEGV"),
        (RunResult((), 1, "sh: cicc: not found"), "it ended with 1 and named no release"),
    ],
)
def test_an_nvcc_that_does_not_answer(ran, gap):
    facts = look({"/usr/local/cuda/bin/nvcc": ""}, runs={"/usr/local/cuda/bin/nvcc --version": ran})
    assert facts["toolkit.version"].gap == gap
    assert facts["toolkit.nvcc"].value == "/usr/local/cuda/bin/nvcc"


def test_a_toolkit_of_wheels_and_of_conda():
    who = TargetEnvironment("/env", "/env/bin/python", "conda", "3.11.9", ("/env/site",), "CONDA_PREFIX")
    files = {"/env/site/nvidia/cu13/bin/nvcc": "", "/env/bin/nvcc": "", "/usr/local/x": ""}
    found = {row["path"]: row["found_by"] for row in look(files, who)["toolkit.others"].value}
    assert found == {"/env": "conda", "/env/site/nvidia/cu13": "a wheel"}


@pytest.mark.parametrize(
    ("text", "version"),
    [(NVCC, "13.0.88"), ("Cuda compilation tools, release 11.4\n", "11.4"), ("", None), ("release soon", None)],
)
def test_what_nvcc_says(text, version):
    assert parse_nvcc_version(text) == version


def test_a_dark_machine():
    class Dark(Fake):
        def answer_query(self, verb, *args):
            raise AccessError("not recorded")

    assert {f.gap for f in toolchain.probe_toolchain(Dark())} == {"not recorded"}
    assert {f.gap for f in compilers.probe_compilers(Dark())} == {"not recorded"}


# -- compilers ----------------------------------------------------------------------------------------

ASK = "-dumpfullversion -dumpversion"
GNU = {"gcc": "/usr/bin/gcc", "g++": "/usr/bin/g++"}


def tools(files=None, **requested):
    host = Fake(files or {}, **requested)
    return host, by_key(compilers.probe_compilers(host))


def test_no_compiler_at_all():
    """D58: seen before the build."""
    _, facts = tools()
    assert set(facts) == set(compilers.KEYS)
    assert all(f.value is None and not f.gap for f in facts.values())


def test_one_question_for_gcc_and_its_twin():
    links = {"/usr/bin/gcc": "x86_64-linux-gnu-gcc", "/usr/bin/g++": "x86_64-linux-gnu-g++"}
    host, facts = tools(path=GNU, links=links, runs={f"/usr/bin/gcc {ASK}": "13.3.0\n"})
    assert facts["compiler.gcc"].value == facts["compiler.gxx"].value == "13.3.0"
    assert len(host.ran()) == 1


def test_a_version_that_stands_in_the_program():
    links = {"/usr/bin/gcc": "x86_64-linux-gnu-gcc-12", "/usr/bin/g++": "x86_64-linux-gnu-g++-12"}
    real = "/usr/bin/x86_64-linux-gnu-gcc-12"
    texts = ["12.2.0", "(Debian 12.2.0-14) ", "../src/configure --program-suffix=-12"]
    host, facts = tools(path=GNU, links=links, elf={(real, ".rodata"): texts})
    assert facts["compiler.gcc"].value == facts["compiler.gxx"].value == "12.2.0"
    assert not host.ran()


def test_two_versions_in_a_program_decide_nothing():
    links = {"/usr/bin/gcc": "gcc-12"}
    host, facts = tools(
        path={"gcc": "/usr/bin/gcc"},
        links=links,
        elf={("/usr/bin/gcc-12", ".rodata"): ["12.1", "12.2.0"]},
        runs={f"/usr/bin/gcc {ASK}": "12.2.0"},
    )
    assert facts["compiler.gcc"].value == "12.2.0"
    assert len(host.ran()) == 1


def test_unlike_compilers_are_both_asked():
    _, facts = tools(path={"gcc": "/usr/bin/gcc", "g++": "/opt/bin/g++"},
                     runs={f"/usr/bin/gcc {ASK}": "11.4.0", f"/opt/bin/g++ {ASK}": "9.4.0"})  # fmt: skip
    assert (facts["compiler.gcc"].value, facts["compiler.gxx"].value) == ("11.4.0", "9.4.0")


@pytest.mark.parametrize("value", ["/opt/gcc-10", "ccache /opt/gcc-10", "/opt/gcc-10 -pthread"])
def test_the_variable_is_honoured(value):
    _, facts = tools(
        env={"CC": value}, path={"/opt/gcc-10": "/opt/gcc-10", **GNU}, runs={f"/opt/gcc-10 {ASK}": "10.5.0"}
    )
    assert facts["compiler.gcc"].value == "10.5.0"


def test_clang_is_no_gcc():
    _, facts = tools(
        env={"CC": "clang"}, path={"clang": "/usr/bin/clang", **GNU}, runs={f"/usr/bin/gcc {ASK}": "12.2.0"}
    )
    assert facts["compiler.gcc"].value == "12.2.0"


def test_a_compiler_that_is_named_and_missing():
    _, facts = tools(env={"CXX": "g++-14"}, path=GNU, runs={f"/usr/bin/gcc {ASK}": "12.2.0"})
    assert facts["compiler.gxx"].value is None
    assert facts["compiler.gxx"].source == "CXX=g++-14"


def test_a_compiler_that_crashes():
    crashed = RunResult((), -11, end="signal SEGV")
    _, facts = tools(path={"gcc": "/usr/bin/gcc"}, runs={f"/usr/bin/gcc {ASK}": crashed})
    assert facts["compiler.gcc"].gap == "signal SEGV"


def test_ninja_and_cmake():
    files = {"/usr/bin/ninja": "\x7fELF", "/usr/share/cmake-3.25/Modules/x": "", "/usr/share/cmake/x": ""}
    host, facts = tools(files, path={"ninja": "/usr/bin/ninja", "cmake": "/usr/bin/cmake"},
                        runs={"/usr/bin/ninja --version": "1.11.1\n"})  # fmt: skip
    assert facts["compiler.ninja"].value == "1.11.1"
    assert facts["compiler.cmake"].value == "3.25"
    assert host.ran() == ["/usr/bin/ninja --version"]


def test_tools_that_came_in_a_wheel_are_not_started():
    files = {
        "/v/bin/ninja": "#!/v/bin/python\n",
        "/v/lib/python3.11/site-packages/ninja-1.13.0.dist-info/METADATA": "",
        "/v/bin/cmake": "#!/v/bin/python\n",
        "/v/lib/python3.11/site-packages/cmake-4.1.0.dist-info/METADATA": "",
    }
    host, facts = tools(files, path={"ninja": "/v/bin/ninja", "cmake": "/v/bin/cmake"})
    assert (facts["compiler.ninja"].value, facts["compiler.cmake"].value) == ("1.13.0", "4.1.0")
    assert not host.ran()


def test_a_cmake_that_must_be_asked():
    _, facts = tools(path={"cmake": "/x/bin/cmake"}, runs={"/x/bin/cmake --version": "cmake version 3.31.2\n\nsuite"})
    assert facts["compiler.cmake"].value == "3.31.2"


def test_a_binary_of_a_wheel_is_not_started():
    files = {"/v/bin/ninja": "\x7fELF", "/v/lib/python3.12/site-packages/ninja-1.13.2.dist-info/METADATA": ""}
    host, facts = tools(files, path={"ninja": "/v/bin/ninja"})
    assert facts["compiler.ninja"].value == "1.13.2" and host.ran() == []


def test_the_name_of_ninja_on_fedora():
    _, facts = tools(path={"ninja-build": "/usr/bin/ninja-build"}, runs={"/usr/bin/ninja-build --version": "1.12.1"})
    assert facts["compiler.ninja"].value == "1.12.1"
