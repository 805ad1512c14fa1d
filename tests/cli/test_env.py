"""``gpuready env`` as a user meets it: real shells read what it writes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpuready.model.plan import EnvironmentSettings, VariableConflict, VariableSetting
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import env
from tests.running import SRC
from tests.running import call_gpuready as gpuready
from tests.sampling import count_draws

SHELLS = ("bash", "fish", "docker", "slurm", "systemd")
QUIET = {"PATH": "/usr/bin:/bin", "HOME": "/proc/self/no-home", "LC_ALL": "C.UTF-8"}
WORDS = ("gpuready", "env", "axolotl")


def test_each_shell_gets_its_lines():
    words = ("env", "roll", "--torch", "2.13.0", "--on", "h100x8", "--shell")
    lines = {shell: gpuready(*words, shell) for shell in SHELLS}
    assert all(run.code == 0 and not run.err for run in lines.values())
    name, value = "PYTORCH_ALLOC_CONF", "expandable_segments:True"
    assert f"export {name}='{value}'" in lines["bash"].out
    assert f"export {name}='{value}'" in lines["slurm"].out
    assert f"set -gx {name} '{value}'" in lines["fish"].out
    assert f"\n{name}={value}\n" in lines["docker"].out
    assert f'Environment="{name}={value}"' in lines["systemd"].out and "[Service]" in lines["systemd"].out
    for run in lines.values():
        plain = [line for line in run.out.splitlines() if line and not line.startswith("#")]
        assert len(plain) >= 5
        assert all(len(line) <= 80 for line in run.out.splitlines() if line.startswith("#"))


def test_eval_works_in_a_real_bash_and_the_users_value_stays():
    command = 'eval "$(python -m gpuready env axolotl --torch 2.13.0)"; env -0'
    path = f"{os.path.dirname(shutil.which('python3') or '')}:/usr/bin:/bin"
    script = command.replace("python -m", f"'{__import__('sys').executable}' -m")
    ran = subprocess.run(
        ["bash", "--norc", "-c", script],
        env=QUIET | {"PATH": path, "PYTHONPATH": str(SRC), "TOKENIZERS_PARALLELISM": "true"},
        capture_output=True,
        timeout=60,
    )
    after = dict(pair.split(b"=", 1) for pair in ran.stdout.split(b"\0") if b"=" in pair)
    assert after[b"HF_XET_HIGH_PERFORMANCE"] == b"1" and b"PYTORCH_ALLOC_CONF" not in after
    assert after[b"TOKENIZERS_PARALLELISM"] == b"true" and not ran.stderr


def test_a_conflict_is_shown_and_is_no_failure():
    run = gpuready("env", "axolotl", "--torch", "2.13.0", PYTORCH_ALLOC_CONF="max_split_size_mb:64")
    assert run.code == 0 and "# conflict: PYTORCH_ALLOC_CONF" in run.out
    assert "export PYTORCH_ALLOC_CONF" not in run.out
    result = gpuready("env", "axolotl", "--torch", "2.13.0", "--json", PYTORCH_ALLOC_CONF="max_split_size_mb:64")
    clash = json.loads(result.out)["conflicts"][0]
    assert clash["have"] == "max_split_size_mb:64" and clash["wants"] == "expandable_segments:True"
    assert clash["cite"] and clash["by"].startswith("axolotl")


def test_the_json_says_who_and_why():
    run = gpuready(
        "env", "roll:torch280-vllm", "--role", "vllm", "--on", "h100x8", "--torch", "2.8.0", "--shell", "json"
    )
    document = json.loads(run.out)
    assert document["schema"] == 1 and document["role"] == "vllm" and "worker" in document["roles"]
    by_name = {row["name"]: row for row in document["variables"]}
    assert by_name["PYTORCH_CUDA_ALLOC_CONF"]["value"] == ""
    assert "pool" in by_name["PYTORCH_CUDA_ALLOC_CONF"]["why"]
    assert all(row["why"] and row["cite"] and row["by"] for row in document["variables"])
    assert document["torch"] == "2.8.0+cu128"


def test_a_machine_that_is_only_named_leaves_what_this_shell_has():
    """The answer is for this shell: a value of the user's must stand there, whatever the machine."""
    result = ("env", "axolotl", "--on", "h100x8", "--torch", "2.13.0")
    run = gpuready(*result, "--json", PYTORCH_ALLOC_CONF="mine")
    assert [c["have"] for c in json.loads(run.out)["conflicts"]] == ["mine"]
    assert "export PYTORCH_ALLOC_CONF" not in gpuready(*result, PYTORCH_ALLOC_CONF="mine").out


def test_a_recording_has_nothing_of_this_shell():
    result = ("env", "transformers", "--on", "tests/machines/h200.json", "--json")
    run = gpuready(*result, TOKENIZERS_PARALLELISM="mine")
    assert json.loads(run.out)["conflicts"] == []


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["axolotil"], "axolotl"),
        (["roll", "--role", "boss", "--on", "h100x8"], "worker"),
        (["axolotl", "--role", "worker", "--on", "h100x8"], "alike"),
        (["axolotl", "--shell", "tcsh"], "--shell"),
        (["axolotl", "--json", "--shell", "fish"], "--shell"),
        (["axolotl", "--on", "h1000000"], "h100"),
        (["axolotl", "--torch", "x"], "torch=x: not a version"),
        (["axolotl", "--contract", "/nonexistent.toml"], "nonexistent"),
        ([], "FRAMEWORK"),
    ],
)
def test_bad_input_is_one_sentence(argv, says):
    run = gpuready("env", *argv)
    assert run.code == 2 and says in run.err
    assert run.out == "" if "--json" not in argv else json.loads(run.out)["error"]["exit"] == 2
    assert len(run.err.strip().splitlines()) == 1 and "Traceback" not in run.err


# -- hostile values -------------------------------------------------------------------------------------

HOSTILE = st.text(
    st.one_of(
        st.sampled_from("'\"\\$`(){}[]*?~!#%&;|<> \n\t\r=,:"),
        st.characters(exclude_characters="\0", exclude_categories=("Cs",)),
    ),
    max_size=20,
)
VALUES = st.lists(HOSTILE, min_size=1, max_size=12)
NASTY = ["$(touch PWNED)", "`id`", "'; id; '", '"; id', "a\nb\n", "\\", "\\'", "%n %%", "-", "", "\x1b[31m", "\udcff"]


def read_back(argv: list[str], script: str, count: int, cwd) -> list[bytes | None]:
    ran = subprocess.run(
        [*argv, script.encode("utf-8", "surrogateescape")], env=QUIET, capture_output=True, cwd=cwd, timeout=60
    )
    assert not ran.stderr, ran.stderr
    pairs = dict(pair.split(b"=", 1) for pair in ran.stdout.split(b"\0") if b"=" in pair)
    return [pairs.get(b"V%d" % i) for i in range(count)]


def raw(values: list[str]) -> list[bytes]:
    return [value.encode("utf-8", "surrogateescape") for value in values]


@settings(max_examples=count_draws(60), deadline=None)
@given(VALUES)
@example(NASTY)
def test_bash_reads_every_value_back(tmp_path_factory, values):
    where = tmp_path_factory.getbasetemp()
    script = "\n".join(env.bash_export_line(f"V{i}", value) for i, value in enumerate(values)) + "\nenv -0"
    assert read_back(["bash", "--norc", "-c"], script, len(values), where) == raw(values)
    assert not (where / "PWNED").exists()


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here: its rules are read below")
@settings(max_examples=count_draws(60), deadline=None)
@given(VALUES)
@example(NASTY)
def test_fish_reads_every_value_back(tmp_path_factory, values):
    script = "\n".join(env.fish_set_line(f"V{i}", value) for i, value in enumerate(values)) + "\nenv -0"
    argv = [str(shutil.which("fish")), "--no-config", "-c"]
    assert read_back(argv, script, len(values), tmp_path_factory.getbasetemp()) == raw(values)


def as_fish(line: str) -> bytes:
    """What fish makes of the word behind ``set -gx NAME``, by its documented quoting: in single quotes the

    backslash escapes itself and the quote; outside, ``\\XHH`` is a byte. Anything else outside quotes is an error.
    """
    word, out, at = line.split(" ", 3)[3], b"", 0
    while at < len(word):
        if word[at] == "'":
            at += 1
            while word[at] != "'":
                if word[at] == "\\" and word[at + 1] in "\\'":
                    at += 1
                out += raw([word[at]])[0]
                at += 1
            at += 1
        else:
            assert word[at : at + 2] == "\\X", f"{word[at:]!r} stands outside the quotes"
            out += bytes([int(word[at + 2 : at + 4], 16)])
            at += 4
    return out


@given(HOSTILE)
@example("'\\''")
@example("\\")
@example("\x1b'")
@example("\udcff")
def test_fish_by_its_own_rules(value):
    assert as_fish(env.fish_set_line("V", value)) == raw([value])[0]


def as_systemd(line: str) -> tuple[str, bytes]:
    """One ``Environment=`` by systemd.exec and systemd.syntax: quotes, C escapes, and % doubled."""
    assert line.startswith('Environment="') and line.endswith('"') and "\n" not in line
    inside, out, at = line[len('Environment="') : -1], b"", 0
    while at < len(inside):
        char = inside[at]
        if char == "\\":
            after = inside[at + 1]
            if after == "x":
                out += bytes([int(inside[at + 2 : at + 4], 16)])
                at += 4
                continue
            assert after in '\\"'
            char, at = after, at + 1
        elif char == "%":
            assert inside[at + 1] == "%", "a specifier would be put in"
            at += 1
        else:
            assert char != '"', "the quotes end early"
        out += raw([char])[0]
        at += 1
    name, _, value = out.partition(b"=")
    return name.decode(), value


@given(HOSTILE)
@example('%n \\ " \n $HOME')
def test_systemd_by_its_own_rules(value):
    assert as_systemd(env.systemd_env_line("V", value)) == ("V", raw([value])[0])


@given(HOSTILE)
@example("a\rb")
def test_docker_takes_the_line_as_it_stands_or_it_is_refused(value):
    if escape_unprintable(value) != value:
        with pytest.raises(ValueError, match="line break"):
            env.docker_env_line("V", value)
    else:
        assert env.docker_env_line("V", value) == f"V={value}"


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("name", ["A B", "1A", "A;id", "", "A=B", "É", "A\nB"])
def test_a_name_that_is_none_is_refused(shell, name):
    with pytest.raises(ValueError, match="not the name"):
        env.render_env_script(
            EnvironmentSettings("mine", "1", variables=(VariableSetting(name, "x", "mine"),)), shell, WORDS
        )


@pytest.mark.parametrize("write", [env.bash_export_line, env.fish_set_line, env.docker_env_line, env.systemd_env_line])
def test_a_nul_is_refused(write):
    with pytest.raises(ValueError, match="NUL"):
        write("V", "a\0b")


@settings(max_examples=count_draws(40), deadline=None)
@given(HOSTILE, HOSTILE)
@example("x\nexport EVIL=1\n", "\x1b]0;x\x07")
def test_comments_never_end_early(said, have):
    found = EnvironmentSettings(
        "mine", "1", machine=said, torch=said,
        variables=(VariableSetting("V", "x", said, said, said),),
        conflicts=(VariableConflict("W", have, said, said, said, said, said),),
        left=(VariableSetting("U", "", "mine", said),),
        notes=(said,),
    )  # fmt: skip
    lines = env.render_env_script(found, "bash", WORDS).split("\n")
    assert [line for line in lines if line and not line.startswith("#")] == ["export V='x'"]
    assert all(line.isprintable() for line in lines)


def test_a_contract_of_the_users_own(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'framework = "mine"\nversion = "1.0"\ntitle = "Mine"\norigin = "me"\n'
        'variables = [{ name = "MY_VAR", access = "set", value = "$(id) \'x\'", cite = "me" }]\n'
    )
    allowed = ("--contract", str(path), "--allow-variable", "MY_VAR")
    run = gpuready("env", "mine", *allowed, "--on", "h100x8")
    assert run.code == 0, run.err
    assert "export MY_VAR='$(id) '\\''x'\\'''" in run.out
    other = gpuready("env", "axolotl", "--contract", str(path), "--on", "h100x8")
    assert other.code == 2 and "mine" in other.err
    clash = gpuready("env", "mine", *allowed, MY_VAR="other")
    assert "conflict: MY_VAR" in clash.out
