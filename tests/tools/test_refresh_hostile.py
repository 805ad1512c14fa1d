"""Answers that are broken or mean harm: one sentence each, nothing written, never a traceback."""

from __future__ import annotations

import io
import zipfile

import pytest

from .indexed import ranged
from .test_refresh import before_215, data, refresh, room, served, texts, without  # noqa: F401

X86 = "torch-2.15.0-cp311-cp311-manylinux_2_28_x86_64.whl"
WHEEL = f"/files/{X86}"


def zipped(members: dict[str, bytes], **how: int) -> bytes:
    body = io.BytesIO()
    with zipfile.ZipFile(body, "w", **how) as out:
        for name, content in members.items():
            out.writestr(name, content)
    return body.getvalue()


def members(body: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(body)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def circle(handler):
    handler.say(302, Location=handler.path)


def whole(handler):
    handler.say(200, handler.served.wheels[X86] + bytes(65 << 20))


def lying(handler):
    """The whole size is not what it says: the end is not the end."""
    body = handler.served.wheels[X86]
    ranged(handler, body[: len(body) // 2])


WHEELS = {
    "ignores Range": (whole, "is larger than"),
    "truncated": (lying, "cannot be read"),
    "gone": (lambda h: h.say(404), "cannot be read"),
    "circle": (circle, "cannot be read"),
    "to a file": (lambda h: h.say(302, Location="file:///etc/passwd"), "cannot be read"),
    "hung up": (lambda h: h.connection.close(), "cannot be read"),
    "no zip": (lambda h: ranged(h, b"\0" * 100_000), "cannot be read"),
}


@pytest.mark.parametrize(("special", "says"), WHEELS.values(), ids=WHEELS)
def test_a_wheel_that_cannot_be_read(refresh, served, room, before_215, special, says):  # noqa: F811
    served.special[WHEEL] = special
    first = texts(room)
    code, _, err = refresh("--write", "--only", "torch")
    assert code == 2 and err.count("\n") == 1 and says in err and X86 in err and "127.0.0.1" not in err, err
    assert texts(room) == first


PAGES = {
    "404": (lambda h: h.say(404), "bitsandbytes: "),
    "no JSON": (lambda h: h.say(200, b"<html>"), "is no list of files"),
    "another JSON": (lambda h: h.say(200, b'{"files": [3]}'), "is no list of files"),
    "deep JSON": (lambda h: h.say(200, b"[" * 200_000), "no list of files"),
    "circle": (circle, "bitsandbytes: "),
    "cut": (lambda h: h.say(200, b"<a", Content_Length="900"), "broke off"),
}


@pytest.mark.parametrize(("special", "says"), PAGES.values(), ids=PAGES)
def test_a_page_that_cannot_be_read(refresh, served, room, special, says):  # noqa: F811
    served.special["/simple/bitsandbytes/"] = special
    without(room, "packages", "package.version", "version", "1.9.0")
    first = texts(room)
    code, out, err = refresh("--write", "--only", "packages")
    assert code == 2 and says in err and err.count("\n") == 1, err
    assert "fbgemm-gpu-genai/1.9.0" in out, "the others are still told"
    assert texts(room) == first


CONTENTS = {
    "no metadata": ({"torch-2.15.0.dist-info/METADATA": None}, "no METADATA in it"),
    "of another version": (
        {"torch-2.15.0.dist-info/METADATA": b"Name: torch\nVersion: 9.9\n"},
        "its METADATA is of version 9.9",
    ),
    "no version": ({"torch-2.15.0.dist-info/METADATA": b"Version: \x1b[2J\n"}, "its METADATA is of version"),
    "endless metadata": ({"torch-2.15.0.dist-info/METADATA": bytes(5 << 20)}, "is larger than"),
    "no version.py": ({"torch/version.py": None}, "names no commit"),
    "version.py is no Python": ({"torch/version.py": b"cuda = = 1"}, "is not Python"),
    "version.py with a zero": ({"torch/version.py": b"cuda = '1'\0"}, "is not Python"),
    "a strange CUDA": ({"torch/version.py": b"cuda = 'x'\ngit_version = '" + b"0" * 40 + b"'\n"}, "names no CUDA"),
    "no list of architectures": ({"torch/lib/libtorch_python.so": b"sm_90"}, "no list of architectures"),
}


@pytest.mark.parametrize(("changed", "says"), CONTENTS.values(), ids=CONTENTS)
def test_a_wheel_whose_contents_make_no_sense(refresh, served, room, before_215, changed, says):  # noqa: F811
    inside = members(served.wheels[X86]) | changed
    kept = {name: body for name, body in inside.items() if body is not None}
    served.wheels[X86] = zipped(kept, compression=zipfile.ZIP_DEFLATED)
    first = texts(room)
    code, _, err = refresh("--write", "--only", "torch")
    assert code == 2 and says in err and err.count("\n") == 1, err
    assert "\x1b" not in err and texts(room) == first


def test_a_member_that_is_damaged(refresh, served, room, before_215):  # noqa: F811
    body = bytearray(served.wheels[X86])
    with zipfile.ZipFile(io.BytesIO(bytes(body))) as opened:
        at = opened.getinfo("torch-2.15.0.dist-info/METADATA").header_offset
    body[at + 80 : at + 400] = b"\xff" * 320
    served.wheels[X86] = bytes(body)
    code, _, err = refresh("--write", "--only", "torch")
    assert code == 2 and "cannot be read" in err


@pytest.mark.parametrize("address", ["ftp://host/simple", "file:///srv/simple", "nonsense", "http://"])
def test_an_index_that_cannot_be_asked(refresh, room, address):  # noqa: F811
    first = texts(room)
    code, _, err = refresh("--write", "--index", address)
    assert code == 2 and err.count("\n") == 1 and "is no http or https address" in err
    assert texts(room) == first


def test_a_page_may_not_lead_out_of_the_web(refresh, served, before_215):  # noqa: F811
    for row in served.pages["torch"]:
        row["href"] = "../" + row["href"]
    whole_page = served._json("torch").replace(b'"url": "/files/../', b'"url": "file:///files/')
    served.special["/simple/torch/"] = lambda h: h.say(200, whole_page, Content_Type="application/json")
    code, _, err = refresh("--only", "torch")
    assert code == 2 and "not followed" in err


def test_a_password_goes_to_its_host_and_nowhere_else(refresh, served, room):  # noqa: F811
    heard = []

    def asks(handler):
        heard.append(handler.headers.get("Authorization", ""))
        served.answer(handler)

    def away(handler):
        heard.append(handler.headers.get("Authorization", ""))
        handler.say(302, Location=served.address.replace("127.0.0.1", "localhost") + "bitsandbytes/")

    served.special["/simple/peft/"] = asks
    served.special["/simple/bitsandbytes/"] = lambda h: (away if h.headers["Host"].startswith("127") else asks)(h)
    address = served.address.replace("http://", "http://me:s3cr%3Ft@")
    code, out, err = refresh("--index", address, "--only", "packages/peft", "--only", "packages/bitsandbytes")
    assert code == 0 and heard == ["Basic bWU6czNjcj90", "", "Basic bWU6czNjcj90"]
    served.special["*"] = lambda h: h.say(500)
    served.special.pop("/simple/peft/")
    _, out, err = refresh("--index", address, "--only", "packages/peft")
    assert "s3cr" not in out + err and "bWU6" not in out + err


def test_hostile_text_reaches_neither_the_screen_nor_the_file_raw(refresh, served, room):  # noqa: F811
    without(room, "packages", "package.version", "version", "0.50.2")
    for row in served.pages["bitsandbytes"]:
        row["requires-python"] = '>=3.10\x1b[2J"\n[[package]]\nname = "evil'
    code, out, _ = refresh("--write", "--only", "packages/bitsandbytes")
    assert code == 0 and "\x1b" not in out
    row = next(p for p in data(room, "packages")["package"] if p["name"] == "bitsandbytes")["version"][-1]
    assert row["version"] == "0.50.2" and "requires_python" not in row, "what makes no sense is not believed"
