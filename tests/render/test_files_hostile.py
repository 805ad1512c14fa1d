"""Nothing from a plan breaks out of its quotes: either a file is refused, or its reader finds just what went in."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gpuready.model import FixStep
from gpuready.model.plan import KernelPlan, LockedPackage, Plan
from gpuready.render import files
from gpuready.render.files.pins import HASH_FILE
from tests.render.dockerfiles import environment, parsed
from tests.sampling import count_draws

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EVIL = ("'; touch owned; '", '"; touch owned; "', "$(touch owned)", "`touch owned`", "a\nRUN touch owned", "GPUREADY_END\n",
        "a b", "#", "\\", "'", '"', "$HOME", "\x1b[2J", "\u202e", "-r /etc/passwd", "--index-url=http://evil", "a: b",
        "{{ x }}", "é", "\u2028", "\x85", "\x00", "a==1\nb==2", "*", "~", "!ls", "%s", "\ud800")  # fmt: skip
text = st.one_of(st.sampled_from(EVIL), st.text(max_size=12), st.sampled_from(EVIL).map(lambda x: f"torch{x}"))
quick = settings(max_examples=count_draws(60), deadline=None, suppress_health_check=list(HealthCheck))


def plan(**fields) -> Plan:
    known = {
        "python": "3.12", "torch": "2.13.0", "cuda": "12.6", "index": "pypi", "resolved": "resolved",
        "image": "nvidia/cuda:12.6.3-runtime-ubuntu24.04", "lock": (LockedPackage("torch", "2.13.0", ("sha256:" + "a" * 64,)),),
    }  # fmt: skip
    return Plan("transformers", "5.22", "plan", **known | fields)


def written(one: Plan, form: str) -> str | None:
    """The file, or None where it is refused in one sentence."""
    try:
        found = files.render_plan_file(one, form)
    except ValueError as refused:
        assert "\n" not in str(refused) and str(refused).isprintable()
        return None
    found.encode()
    return found


@quick
@given(text, text)
def test_names_and_versions(name, version):
    one = plan(lock=(LockedPackage(name, version, ("sha256:" + "a" * 64,)),), packages={name: version})
    for form in files.FILE_FORMATS:
        found = written(one, form)
        if found is None:
            continue
        assert "touch" not in found or "touch" in (name + version)
        if form == "pyproject":
            assert tomllib.loads(found)["project"]["dependencies"] == [f"{name}=={version}"]
        if form == "conda":
            [pip] = [row["pip"] for row in yaml.safe_load(found)["dependencies"] if isinstance(row, dict)]
            assert pip == [f"{name}=={version} --hash=sha256:{'a' * 64}"]
        if form == "requirements":
            kept = [line for line in found.splitlines() if line and not line.lstrip().startswith("#")]
            assert kept == [f"{name}=={version} \\", f"    --hash=sha256:{'a' * 64}"]
        if form == "dockerfile":
            assert [rest for word, rest in parsed(found) if word == "COPY"] == [f"{HASH_FILE} /opt/{HASH_FILE}"]


@quick
@given(text)
def test_values_of_variables(value):
    one = plan(variables={"ODD": value})
    found = {form: written(one, form) for form in files.FILE_FORMATS if form != "lock"}
    if found["shell"] is None:
        assert not value.isprintable()
        return
    assert yaml.safe_load(found["conda"])["variables"] == {"ODD": value}
    assert environment(found["dockerfile"])["ODD"] == value
    line = next(line for line in found["slurm"].splitlines() if line.startswith("export ODD="))
    said = subprocess.run(["bash", "-c", f'{line}; printf %s "$ODD"'], capture_output=True, check=True)
    assert said.stdout.decode() == value


@quick
@given(text, text)
def test_words_of_steps_reach_bash_as_they_are(word, does):
    one = plan(steps=(FixStep(does, ("printf", "%s", word), "ask"),), options={"fix": True}, lock=(), resolved="")
    found = written(one, "shell")
    assume(found is not None)
    assert subprocess.run(["bash", "-n"], input=found.encode(), check=False).returncode == 0
    lines = [line for line in found.splitlines() if line.startswith("printf")]
    said = subprocess.run(["bash", "-c", "\n".join(lines)], capture_output=True, check=True)
    assert said.stdout.decode() == word


@quick
@given(text)
def test_text_in_comments_stays_in_comments(words):
    one = plan(machine=words, variant=words, catalog=words, lock=(LockedPackage("torch", "2.13.0", ("sha256:" + "a" * 64,), via=(words,)),),
               notes=(words,), kernels=(KernelPlan("flash-attn", "2.8.3", "index", words),))  # fmt: skip
    calm = plan(kernels=(KernelPlan("flash-attn", "2.8.3", "index", ""),))
    for form in files.FILE_FORMATS:
        found, without = written(one, form), written(calm, form)
        if form == "lock":
            assert json.loads(found)["variant"] == words or "\ud800" in words
            continue
        assert _bare(found) == _bare(without)


def _bare(found: str) -> list[str]:
    return [line for line in found.splitlines() if line and not line.lstrip().startswith("#")]


@quick
@given(text)
def test_addresses_origins_and_images(address):
    for fields in (
        {"indexes": {"pypi": address}},
        {"indexes": {"cu126": address}, "lock": (LockedPackage("torch", "1", ("sha256:" + "a" * 64,), "cu126"),)},
        {"image": address},
        {
            "lock": (
                LockedPackage("torch", "2.13.0", ("sha256:" + "a" * 64,)),
                LockedPackage("own", "1", origin=address or "x"),
            )
        },
    ):
        one = plan(**fields)
        for form in ("requirements", "conda", "pyproject", "dockerfile", "shell"):
            found = written(one, form)
            if found is None:
                continue
            if form == "shell":
                assert subprocess.run(["bash", "-n"], input=found.encode(), check=False).returncode == 0
            if form == "dockerfile":
                parsed(found)
            if form == "pyproject":
                tomllib.loads(found)
            if form == "conda":
                yaml.safe_load(found)


@pytest.mark.parametrize("address", ["https://me:secret@host/simple", "ftp://host", "https://host/a b", "host"])
def test_an_address_that_no_file_should_hold(address):
    with pytest.raises(ValueError, match="address of an index"):
        files.render_plan_file(plan(indexes={"pypi": address}), "requirements")


@pytest.mark.parametrize(
    "fields",
    [{"lock": (LockedPackage("torch", "2", ("md5:" + "a" * 32,)),)}, {"lock": (LockedPackage("torch", "2", ("sha256:zz",)),)},
     {"variables": {"A B": "x"}}, {"unset": ("A;B",)}, {"packages": {"a/../b": "1"}}, {"python": "3.12; rm"},
     {"image": "a b"}, {"image": "-v"}],
)  # fmt: skip
def test_what_has_a_grammar_keeps_to_it(fields):
    with pytest.raises(ValueError, match="the plan names a"):
        files.render_plan_file(plan(**fields), "shell")
