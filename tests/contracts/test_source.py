"""Contract files of users: what is accepted, and that every fault is named by file, table and key."""

from __future__ import annotations

import time

import pytest

from gpuready import contracts
from gpuready.contracts import BadContract, contract_file

GOOD = """\
framework = "kite"
version = "1.2.0"
distribution = "kite-ml"
title = "Kite"
origin = "its README, 2031-01-01"
platforms = ["cuda", "rocm"]
notes = ["It flies."]

[[needs]]
key = "package.torch"
want = ">=2.2,<3"
cite = "README.md:1"

[[needs]]
key = "gpu.memory"
want = ">=16GB"
when = "model>=7b"
level = "recommended"
cite = "README.md:2"

[[capabilities]]
name = "bf16"
gate = "bf16"
when = "wants=bf16"
cite = "README.md:3"

[[variables]]
name = "KITE_STRING"
access = "read and set"
value = "long"
allowed = ["long", "short"]
required = true
cite = "README.md:4"

[[errors]]
message = "the string broke"
cause = "wind"
fix = "a new string"
cite = "README.md:5"

[[steps]]
does = "install it"
run = ["pip", "install", "kite-ml>=1.2,<2"]
safety = "ask"
"""


@pytest.fixture
def write(tmp_path):
    def put(text, name="mine.toml"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return put


def refusal(path):
    with pytest.raises(BadContract) as caught:
        contracts.read_contract_file(path)
    return str(caught.value)


def test_a_sound_file_becomes_a_contract(write):
    contract = contracts.read_contract_file(write(GOOD))
    assert contract.name == "kite 1.2.0"
    assert contract.platforms == ("cuda", "rocm")
    assert [n.level for n in contract.needs] == ["required", "recommended"]
    assert contract.capabilities[0].level == "optional"
    assert contract.variables[0].allowed == ("long", "short") and contract.variables[0].required is True
    assert contract.errors[0].fix == "a new string"
    assert contract.steps[0].run == ("pip", "install", "kite-ml>=1.2,<2")
    assert contract.notes == ("It flies.",)


def test_inline_tables_mean_the_same(write):
    inline = 'framework = "kite"\nversion = "1"\nneeds = [{ key = "package.torch", want = ">=2.2" }]\n'
    assert contracts.read_contract_file(write(inline)).needs[0].want == ">=2.2"


@pytest.mark.parametrize(
    ("old", "new", "reported"),
    [
        ('version = "1.2.0"', "", ["'version'", "missing"]),
        ('version = "1.2.0"', 'version = "one"', ["'one'", "not a version"]),
        ('framework = "kite"', 'framework = "kite; rm"', ["framework", "plain name"]),
        ('title = "Kite"', "title = 3", ["title", "text"]),
        ('title = "Kite"', 'titel = "Kite"', ["'titel'", "title"]),
        ('"rocm"]', '"rokm"]', ["'rokm'", "rocm"]),
        ('"rocm"]', "3]", ["platforms", "list of text"]),
        ('notes = ["It flies."]', 'notes = ["It \\u001b[31mflies."]', ["notes", "control"]),
        ('notes = ["It flies."]', 'notes = ["It \\u202eflies."]', ["notes", "invisible"]),
        ('key = "package.torch"', 'key = "package.Torch"', ["[[needs]] 1", "package name"]),
        ('key = "package.torch"', 'key = "package.torch;reboot"', ["[[needs]] 1", "package name"]),
        ('key = "package.torch"', 'key = "package.a\\nb"', ["[[needs]] 1", "package name"]),
        ('key = "gpu.memory"', 'key = "gpu.memori"', ["[[needs]] 2", "gpu.memory"]),
        ('want = ">=2.2,<3"', "want = 2.2", ["[[needs]] 1", "want", "text"]),
        ('want = ">=2.2,<3"', 'want = "2.2"', ["[[needs]] 1", "'2.2'"]),
        ('want = ">=16GB"', 'want = "plenty"', ["[[needs]] 2", "'plenty'", ">=16GB"]),
        ('when = "model>=7b"', 'when = "model is big"', ["[[needs]] 2", "model is big"]),
        ('when = "model>=7b"', 'when = "gpu.sise>1"', ["[[needs]] 2", "gpu.sise"]),
        ('level = "recommended"', 'level = "nice"', ["[[needs]] 2", "level", "recommended"]),
        ('level = "recommended"', 'levle = "recommended"', ["[[needs]] 2", "'levle'", "level"]),
        ('gate = "bf16"', 'gate = "bf61"', ["[[capabilities]] 1", "bf16"]),
        ('name = "bf16"', 'name = "BF 16"', ["[[capabilities]] 1", "plain name"]),
        ('name = "KITE_STRING"', 'name = "KITE STRING"', ["[[variables]] 1", "environment variable"]),
        ('access = "read and set"', 'access = "write"', ["[[variables]] 1", "access"]),
        ("required = true", 'required = "yes"', ["[[variables]] 1", "required", "true or false"]),
        ('allowed = ["long", "short"]', "allowed = [1]", ["[[variables]] 1", "allowed"]),
        ('cause = "wind"', "", ["[[errors]] 1", "'cause'"]),
        ('cause = "wind"', 'cause = "wind"\ncode = "X1"', ["[[errors]] 1", "code"]),
        ('"kite-ml>=1.2,<2"', '"kite-ml; rm -rf ~"', ["[[steps]] 1", "shell"]),
        ('"kite-ml>=1.2,<2"', '"$(id)"', ["[[steps]] 1", "shell"]),
        ('"kite-ml>=1.2,<2"', '"a\\nb"', ["[[steps]] 1"]),
        ('"kite-ml>=1.2,<2"', '">/etc/passwd"', ["[[steps]] 1", "shell"]),
        ('"kite-ml>=1.2,<2"', '"`id`"', ["[[steps]] 1", "shell"]),
        ('"pip", "install"', '"-rf", "install"', ["[[steps]] 1", "not a program"]),
        ('safety = "ask"', 'safety = "yolo"', ["[[steps]] 1", "safety"]),
    ],
)
def test_each_fault_is_named_by_file_table_and_key(write, old, new, reported):
    assert old in GOOD
    message = refusal(write(GOOD.replace(old, new, 1)))
    for word in ["mine.toml", *reported]:
        assert word in message
    assert "\x1b" not in message and "Traceback" not in message


def test_all_faults_are_told_at_once_in_one_line(write):
    text = GOOD.replace("package.torch", "package.Torch").replace(">=16GB", "plenty").replace('"ask"', '"now"')
    message = refusal(write(text))
    assert message.count("mine.toml, [[") == 3 and "\n" not in message
    assert message.count("; mine.toml, [[") == 2


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_file_that_ends_too_early_names_its_last_line(write, end):
    message = refusal(write(f'framework = "kite"\nneeds = [\n  {{ key = "gpu.count" }},{end}'))
    assert message.startswith("mine.toml is not TOML") and "line 3, at the end of the file" in message


@pytest.mark.parametrize("table", ["needs", "capabilities", "variables", "errors", "steps"])
def test_a_table_of_the_wrong_shape_is_refused(write, table):
    head = 'framework = "kite"\nversion = "1"\n'
    assert table in refusal(write(head + f"{table} = 3\n"))
    assert table in refusal(write(head + f"{table} = [1, 2]\n"))


def test_a_syntax_error_names_file_and_line(write):
    message = refusal(write('framework = "kite"\nversion = = "1"\n'))
    assert "mine.toml" in message and "line 2" in message and "\n" not in message


@pytest.mark.parametrize(
    ("raw", "reported"),
    [
        (b"\xef\xbb\xbfframework = 'kite'\n", "byte order mark"),
        (b"framework = 'kite'\nversion = '\xff\xfe'\n", "line 2 is not UTF-8"),
        (b"framework = 'k\x00ite'\n", "not TOML"),
        (b"# " + b"x" * (1 << 20), "1 MiB"),
        (b"", "'framework'"),
        (b"framework = 'a'\nframework = 'b'\n", "line 2"),
        (b"a = " + b"9" * 100_000, "mine.toml"),
    ],
)
def test_broken_bytes_are_refused_in_words(write, raw, reported):
    assert reported in refusal(write(raw))


@pytest.mark.parametrize(
    "bomb",
    [
        "a" + ".a" * 200_000 + " = 1",
        "[" + "a." * 200_000 + "a]",
        '"a"' + '."a"' * 100_000 + " = 1",
        "a = " + "[" * 100_000 + "]" * 100_000,
        "a = " + "{a=" * 50_000 + "1" + "}" * 50_000,
        "a = " + "[[{b=" * 20_000,
        "a = " + "9" * 1_000_000,
        "a = " + "-" * 1_000_000,
        "a. " * 340_000,
        '"' * 1_000_000,
        "[" * 1_000_000,
        "".join(f"[[needs]]\nkey = 'k{i}'\n" for i in range(20_000)),
    ],
    ids=[str(n) for n in range(12)],
)
def test_bombs_are_refused_at_once(write, bomb):
    start = time.process_time()
    assert "mine.toml" in refusal(write(bomb))
    assert time.process_time() - start < 5  # of the processor, however busy the machine is


def test_dots_and_brackets_inside_text_are_only_text(write):
    text = GOOD.replace('"It flies."', '"' + "a.b." * 40 + "[" * 40 + '"').replace('"Kite"', "'''x.y.z.x.y.z.x.y.z'''")
    assert (
        contracts.read_contract_file(write(text + "# a.b.c.d.e.f.g.h.i.j = [[[[[[[[[[ '\n")).title
        == "x.y.z.x.y.z.x.y.z"
    )


def test_what_is_not_a_readable_file_is_refused(tmp_path):
    assert "no-such.toml" in refusal(str(tmp_path / "no-such.toml"))
    assert "not a file" in refusal(str(tmp_path))
    with pytest.raises(BadContract):
        contracts.read_contract_file("nul\0byte.toml")


def test_a_variant_adds_to_and_replaces_rows_of_its_base(write):
    write(GOOD, "base.toml")
    child = """\
extends = "base"
version = "1.2.0"
variant = "long"
needs = [
  { key = "package.torch", want = "==2.8.0", cite = "long.txt:1" },
  { key = "package.reel", want = "*", cite = "long.txt:2" },
]
notes = ["It flies far."]
"""
    data = contract_file.read_contract_data(write(child, "child.toml"))
    assert (data["framework"], data["variant"], data["title"]) == ("kite", "long", "Kite")
    wants = {n["key"]: n["want"] for n in data["needs"]}
    assert wants == {"gpu.memory": ">=16GB", "package.torch": "==2.8.0", "package.reel": "*"}
    assert data["notes"] == ["It flies.", "It flies far."]
    assert len(data["variables"]) == 1 and "extends" not in data


def test_extends_in_circles_or_to_nowhere_is_refused(write):
    first = write('extends = "second"\nframework = "a"\nversion = "1"\n', "first.toml")
    write('extends = "first"\nframework = "a"\nversion = "1"\n', "second.toml")
    assert "extends" in refusal(first)
    assert "no nowhere.toml" in refusal(write('extends = "nowhere"\nversion = "1"\n'))
    assert "plain name" in refusal(write('extends = "../../etc/passwd"\nversion = "1"\n'))


def test_a_base_with_faults_is_refused_too(write):
    write(GOOD.replace(">=16GB", "plenty"), "base.toml")
    assert "base.toml" in refusal(write('extends = "base"\nversion = "1.2.0"\n', "child.toml"))
