"""Every reader of hostile text under a small, fixed storm: corpora, properties, and what fuzzing has found before."""

from __future__ import annotations

import json
import pickle
import random
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.every import every
from tests.fuzz.paper import RECORDED
from tests.fuzz.parsers import PARSERS, feed

CORPUS = Path(__file__).parent / "corpus"
SLOW = {
    "recording": 4,
    "log": 6,
    "checkout": 10,
    "training": 8,
    "contract": 6,
    "dockerfile": 10,
    "metadata": 10,
    "host": 8,
}
"""How many examples of readers that take tens of milliseconds; of the others thirty."""

TOKENS = (
    b"\x00", b"\xff\xfe", b"\xc2\xb2", b"9" * 5000, b"-1", b"1e999", b"NaN", b"null", b"{", b"[" * 2000, b"\n", b"\r",
    b'"', b"'", b"\\", b"<", b"&amp;", b"=", b":", b",", b"[1-9]", b"(x3)", b"${", b"$(rm)", b"../", b"\x1b[31m",
    b"\xe2\x80\xae", b"!!python/object/apply:os.system ['x']", b"<<EOF", b"&a [*a, *a]", b"{{x}}", b" " * 3000,
)  # fmt: skip


def seeds(name: str) -> list[bytes]:
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*"))] or [b"{}"]


@st.composite
def storms(draw: st.DrawFn, name: str) -> bytes:
    """A seed, cut, doubled and strewn with what breaks readers."""
    text = draw(st.sampled_from(seeds(name)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(text)))
        end = draw(st.integers(at, min(len(text), at + 200)))
        put = draw(st.one_of(st.sampled_from(TOKENS), st.binary(max_size=20), st.just(text[at:end] * 2)))
        text = text[:at] + put + text[end if draw(st.booleans()) else at :]
    return text


@pytest.mark.parametrize("name", PARSERS)
def test_a_reader_answers_or_refuses(name):
    @settings(
        max_examples=SLOW.get(name, 10), derandomize=True, deadline=None, database=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(storms(name))
    def storm(data: bytes) -> None:
        feed(name, data)

    storm()


KINDS = (
    None, 0, -1, 2.5, 1e308, float("nan"), 10**400, True, "", "x", "\ud800", "9" * 5000, [], {}, [1], ["a"], [[]], [None], {"a": 1}, {"": {}},
)  # fmt: skip
"""What may stand in JSON in the place of anything else."""


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield at
    inside = value.items() if isinstance(value, dict) else enumerate(value[:4]) if isinstance(value, list) else ()
    for key, item in inside:
        yield from places(item, (*at, key))


def put(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    copied = value.copy()
    copied[at[0]] = put(value[at[0]], at[1:], new)
    return copied


@pytest.mark.parametrize("name", PARSERS)
def test_a_value_of_another_kind_is_answered_or_refused(name):
    """Bytes seldom become JSON of another shape by chance; so each value is put in the place of each other, in turn."""
    chance = random.Random(name)
    for seed in seeds(name):
        try:
            whole = json.loads(seed)
        except ValueError:
            continue
        where = list(places(whole))
        for _ in range(SLOW.get(name, 30)):
            result = json.dumps(put(whole, chance.choice(where), chance.choice(KINDS)))
            feed(name, (b" " if seed.startswith(b" ") else b"") + result.encode())


@every("name", PARSERS)
def test_the_corpus_is_read(name):
    for data in seeds(name)[:3]:
        feed(name, data)


def test_the_corpora_stay_small():
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000
    assert {path.name for path in CORPUS.iterdir()} == set(PARSERS)


def _tuple_bomb() -> bytes:
    """A pickle of a hundred bytes: a tuple of itself twice, sixty deep, as the key of a table."""
    twice = b"".join([b"2\x86"] * 60)  # DUP, TUPLE2
    return b"\x80\x04}(K\x01" + twice + b"K\x01u."


def _list_bomb() -> bytes:
    return b"\x80\x04}(]q\x00K\x01a" + b"".join([b"2\x86"] * 60) + b"K\x01u."


def _named_bomb() -> bytes:
    """The bomb where a name is expected: it must not be written out."""
    bomb = b"(K\x01l" + b"".join([b"2\x86"] * 60)
    entry = b"}(X\x0d\x00\x00\x00process_group" + bomb + b"X\x05\x00\x00\x00pg_id" + bomb + b"u"
    return b"\x80\x04}(X\x07\x00\x00\x00entries(" + entry + b"lu."


def _elf(offset: int, size: int) -> bytes:
    """A library whose only section with a name is said to lie far outside."""
    names = b"\0.nv_fatbin\0"
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 0, 64, 0, 64, 0, 0, 64, 2, 0)
    rows = struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, 192, len(names), 0, 0, 1, 0)
    return head + rows + struct.pack("<IIQQQQIIQQ", 1, 1, 0, 0, offset, size, 0, 0, 1, 0) + names


def _lock(field: str, value: object) -> bytes:
    """A lock of which one thing is of another kind; a table is put into the first row."""
    whole = json.loads((CORPUS / "lock" / "00").read_bytes())
    if field == "lock" and isinstance(value, dict):
        whole["lock"][0].update(value)
    else:
        whole[field] = value
    return json.dumps(whole).encode()


def _recorded(key: str, value: object) -> bytes:
    """A real machine in which one fact has a value that its kind allows, and no probe tells."""
    whole = json.loads(RECORDED.read_bytes())
    facts = [fact for fact in whole["facts"] if fact["key"] != key]
    fields = {"key": key, "value": value, "source": "x", "how": "read", "gap": ""}
    return json.dumps({**whole, "tape": {}, "facts": [*facts, fields]}).encode()


FOUND = {
    "a number of five thousand digits": ("smi", b"<nvidia_smi_log><attached_gpus>" + b"9" * 5000 + b"</attached_gpus></nvidia_smi_log>"),
    "watts that are no number": ("smi", b"<nvidia_smi_log><gpu id='x'><gpu_power_readings><current_power_limit>nan W</current_power_limit></gpu_power_readings></gpu></nvidia_smi_log>"),
    "a version of five thousand digits": ("nvcc", b"#define CUDA_VERSION " + b"9" * 5000),
    "a size in superscript": ("metadata", "x.py,sha256=abc,²\n".encode()),
    "a rank in superscript": ("log", "(Worker pid=²)(rank=²) x\nsrun: error: n1: task ²: Exited with exit code ²\n".encode()),
    "a thousand brackets": ("nodes", b"n" + b"[1]" * 3000),
    "a billion hosts in spans": ("nodes", b"n[" + b",".join([b"0-99999"] * 400) + b"]"),
    "a billion tasks": ("nodes", b",".join([b"2(x100000)"] * 400)),
    "a tuple that holds itself": ("recorder", _tuple_bomb()),
    "a list that holds itself": ("recorder", _list_bomb()),
    "a name that holds itself": ("recorder", _named_bomb()),
    "a count that is a table": ("recorder", pickle.dumps({"pg_config": {"0": {"ranks": 5}}, "pg_status": {"0": {"last_enqueued_collective": 1 << 9000, "last_completed_collective": {}}}, "entries": []}, 2)),
    "JSON without an end": ("recorder", b'{"pg_config": ' + b"[" * 100_000),
    "a section beyond the file": ("elf", _elf((1 << 63) + 5, 100)),
    "a section of four gigabytes": ("elf", _elf(64, (4 << 30) - 1)),
    "aliases without an end": ("training", b"a: &a [x, x]\n" + b"".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n".encode() for i in range(24)) + b"base_model: *y\n"),
    "a hello that is nested too deeply": ("wire", b"[" * 60_000),
    "a sealed line that is nested too deeply": ("wire", b" " + b"[" * 60_000),
    "a token that is not ASCII": ("wire", '{"t": "hello", "token": "é"}'.encode()),
    "a journal that is nested too deeply": ("kept", b"[" * 60_000),
    "a generation of five thousand digits": ("kept", b"9" * 5000),
    "a mark as long as its secret": ("redaction", b"Bearer abcdefgh1 'key': x, Bearer abcdefgh123"),
    "a number beyond any float": ("arguments", b'{"most": ' + b"9" * 400 + b"}"),
    **{f"a recording whose {key} is {value!r}": ("recording", _recorded(key, value)) for key, value in (
        ("gpu.lost", [None]), ("gpu.lost", [-5]), ("gpu.lost", [1 << 80]), ("net.ib", [True]), ("kernel.xids", [""]), ("gpu.nodes", [""]),
        ("torch.arch", [None]), ("library.shadowed", [1.5]), ("fleet.clocks", [3]), ("job.fit", [{}]), ("python.requires", [1]),
    )},
    "a process that is none": ("nvml", b'[{"name": "H100", "processes": [null, 5, {"pid": 1}]}]'),
    "layers that are no list": ("model", b'{"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 64, "mlp_only_layers": NaN}'),
    "a window from a text on": ("model", b'{"model_type": "qwen2", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 64, "use_sliding_window": true, "sliding_window": 8, "max_window_layers": "x"}'),
    "seconds beyond any float": ("wire", b'{"node": "n1", "pair": {"outcome": "passed", "seconds": ' + b"9" * 400 + b"}}"),
    "a rate beyond any float": ("wire", b'{"node": "n1", "pair": {"outcome": "passed", "rates": [' + b"9" * 400 + b"]}}"),
    "an address that is a number": ("wire", b' {"rank": 0, "world_size": 1, "data": 5}'),
    **{f"a lock whose {field} are {value!r}": ("lock", _lock(field, value)) for field, value in (
        ("packages", 3), ("kernels", {"package": "x", "version": "1", "how": "build", "why": ""}), ("options", []), ("indexes", "x"),
        ("resolved", {}), ("resolved", 1), ("catalog", ["x"]), ("steps", [{"does": 1, "run": 2}]), ("tools", [1]),
    )},
    **{f"a row whose {field} is {value!r}": ("lock", _lock("lock", {field: value})) for field, value in (
        ("version", 5), ("via", [1]), ("via", 3), ("hashes", 7), ("origin", None), ("index", []), ("index", {}),
    )},
    "a link of more seconds than a float has": ("wire", b' [[1, "", ' + b"9" * 400 + b"]]"),
    "a run of frameworks that are no list": ("run_folder", b'{"run": "t", "do": "check", "frameworks": 3}'),
}  # fmt: skip


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_stays_found(what):
    name, data = FOUND[what]
    begun = time.process_time()
    feed(name, data)
    assert time.process_time() - begun < 10, "a bomb went off"  # it would take for ever


def test_a_folder_of_logs_with_unusual_names():
    from gpuready.system.log_streams import _natural_order

    names = sorted(["rank10", "rank2", "rank²"], key=_natural_order)
    assert names.index("rank2") < names.index("rank10")
