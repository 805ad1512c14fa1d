"""Headers, the temporary folder, the disk of the models, the path, the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuready.probe import workspace
from gpuready.probe.hub import find_mount
from gpuready.system import AccessError
from tests.probe.fakes import DENIED, Fake, by_key, someone

MOUNTS = "/proc/self/mountinfo"
PLAIN = """\
24 29 0:23 / /proc rw,relatime - proc proc rw
29 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 29 0:30 / /tmp rw,nosuid,nodev,noexec,relatime shared:7 - tmpfs tmpfs rw,size=1g
31 29 0:31 / /home rw,relatime - nfs4 server:/home rw
32 29 0:32 / /mnt/two\\040words ro,relatime - xfs /dev/sdb rw
"""
HOME = {"HOME": "/home/u", "PATH": "/usr/bin"}


def machine(files=None, mounts=PLAIN, **given):
    base = {MOUNTS: mounts, "/tmp/.": "", "/home/u/.": "", "/usr/bin/env": ""}
    given = {"env": HOME, "user": {"uid": 1000, "name": "u"}, "wall": 1_794_715_600.0, **given}
    given.setdefault("disks", {"/tmp": {"free": 5 << 30, "total": 9 << 30}})
    return Fake(base | (files or {}), **given)


def looked(host, who=None):
    found = workspace.probe_workspace(host, who or someone())
    assert tuple(fact.key for fact in found) == workspace.WORKSPACE
    return by_key(found)


# -- headers


def config(home):
    return {"/venv/pyvenv.cfg": f"home = {home}\nversion = 3.12.4\n"}


@pytest.mark.parametrize(
    ("files", "given", "who", "source"),
    [
        (config("/usr/bin"), {}, someone(), "/usr/include/python3.12/Python.h"),
        (config("/opt/py/bin"), {}, someone(), "/opt/py/include/python3.12/Python.h"),
        (
            config("/usr/local/bin"),
            {"links": {"/usr/local/bin/python3": "/opt/real/bin/python3.12"}},
            someone(),
            "/opt/real/include/python3.12/Python.h",
        ),
        ({}, {}, someone(prefix="/conda", kind="conda"), "/conda/include/python3.12/Python.h"),
        ({}, {}, someone("3.10.12", "/usr", "system"), "/usr/include/python3.10/Python.h"),
    ],
)
def test_headers_where_the_python_below_has_them(files, given, who, source):
    found = looked(machine(files | {source: ""}, **given), who)["python.headers"]
    assert (found.value, found.source) == (True, source)
    found = looked(machine(files, **given), who)["python.headers"]
    assert found.value is False and source in found.source and not found.gap


def test_the_headers_of_another_version_do_not_help():
    files = config("/usr/bin") | {"/usr/include/python3.11/Python.h": ""}
    assert looked(machine(files))["python.headers"].value is False


def test_headers_that_cannot_be_seen():
    files = config("/usr/bin") | {"/usr/include/python3.12/Python.h": DENIED}
    assert looked(machine(files))["python.headers"].gap == "permission denied"
    assert looked(machine({"/venv/pyvenv.cfg": DENIED}))["python.headers"].gap == "permission denied"
    nobody = someone(None, gap="it did not start")
    assert looked(machine(), nobody)["python.headers"].gap == "it did not start"


# -- the temporary folder


def test_the_usual_one():
    found = looked(machine())
    assert (found["tmp.path"].value, found["tmp.path"].source) == ("/tmp", "TMPDIR is not set")
    assert found["tmp.exists"].value is True
    assert (found["tmp.noexec"].value, found["tmp.noexec"].source) == (True, MOUNTS)
    assert found["tmp.free"].value == 5 << 30


def test_one_of_our_own():
    env = HOME | {"TMPDIR": "/scratch/me"}
    found = looked(machine({"/scratch/me/x": ""}, env=env, disks={"/scratch/me": {"free": 7}}))
    assert (found["tmp.path"].value, found["tmp.path"].source) == ("/scratch/me", "TMPDIR")
    assert (found["tmp.noexec"].value, found["tmp.free"].value) == (False, 7)


@pytest.mark.parametrize("files", [{}, {"/scratch": ""}])
def test_one_that_is_not_there_or_no_folder(files):
    found = looked(machine(files, env=HOME | {"TMPDIR": "/scratch"}))
    assert found["tmp.exists"].value is False
    assert found["tmp.noexec"].value is found["tmp.free"].value is None
    assert not found["tmp.noexec"].gap


def test_a_temporary_folder_that_cannot_be_seen():
    found = looked(machine({"/tmp": DENIED, "/tmp/": DENIED}))
    assert {found[key].gap for key in ("tmp.path", "tmp.exists", "tmp.noexec", "tmp.free")} == {"permission denied"}
    found = looked(machine({MOUNTS: DENIED}))
    assert found["tmp.noexec"].gap == "permission denied" and found["tmp.exists"].value is True


def test_without_a_proc_the_mounts_are_unknown():
    found = looked(machine(mounts=None))
    assert found["tmp.noexec"].gap == found["disk.kind"].gap == f"there is no {MOUNTS}"


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/", "ext4"),
        ("/etc", "ext4"),
        ("/tmp", "tmpfs"),
        ("/tmp/deep/down", "tmpfs"),
        ("/tmpfile", "ext4"),
        ("/home/u/.cache", "nfs4"),
        ("/mnt/two words/x", "xfs"),
    ],
)
def test_the_mount_that_holds_a_path(path, kind):
    assert find_mount(PLAIN, path)["type"] == kind


def test_of_two_mounts_in_one_place_the_later_counts():
    assert find_mount(PLAIN + "40 29 0:40 / /tmp rw - ext4 /dev/x rw\n", "/tmp")["options"] == ["rw"]


def test_a_path_on_no_mount():
    text = "31 29 0:31 / /home rw - nfs4 s:/ rw\n"
    assert find_mount(text, "/tmp") is None
    with pytest.raises(AccessError, match="does not have it"):
        workspace.MountTable(Fake({MOUNTS: text})).find_mount("/tmp")


@given(st.text(max_size=200))
def test_mounts_that_are_nonsense_do_no_harm(text):
    assert find_mount(text, "/tmp") is None or " - " in text


def test_the_mounts_are_read_once():
    host = machine()
    looked(host)
    assert len([a for a in host.asked if a[0] == "read" and a[1] == MOUNTS]) == 1


# -- the disk of the models


def test_the_kind_of_disk():
    found = looked(machine())
    assert (found["disk.kind"].value, found["disk.kind"].source) == ("nfs4", MOUNTS)
    env = HOME | {"HF_HUB_CACHE": "/models"}
    assert looked(machine({"/models/x": ""}, env=env))["disk.kind"].value == "ext4"


def test_the_cache_stands_where_its_first_folder_above_stands():
    assert looked(machine())["hub.writable"].source == "/home/u"
    found = looked(machine({"/home/u/.cache/huggingface/hub/x": ""}))["hub.writable"]
    assert found.source == "/home/u/.cache/huggingface/hub"


@pytest.mark.parametrize(
    ("mode", "owner", "uid", "path", "writable"),
    [
        (0o755, 1000, 1000, "/models", True),
        (0o555, 1000, 1000, "/models", False),
        (0o755, 0, 1000, "/models", False),
        (0o757, 0, 1000, "/models", True),
        (0o777, 0, 1000, "/models", True),
        (0o700, 7, 0, "/models", True),
        (0o777, 1000, 1000, "/mnt/two words", False),
        (0o777, 1000, 0, "/mnt/two words", False),
    ],
)
def test_who_may_write(mode, owner, uid, path, writable):
    env = HOME | {"HF_HUB_CACHE": path}
    host = machine({f"{path}/x": ""}, env=env, modes={path: mode}, uids={path: owner}, user={"uid": uid, "name": None})
    found = looked(host)["hub.writable"]
    assert (found.value, found.gap) == (writable, "")


@pytest.mark.parametrize(
    ("mode", "owner", "uid", "path", "gap"),
    [
        (0o775, 0, 1000, "/models", "a group"),
        (0o770, 0, 1000, "/models", "a group"),
        (0o755, 0, 0, "/home/models", "root may have no rights on nfs4"),
        (0o755, 0, None, "/models", "not known"),
    ],
)
def test_who_may_write_is_not_always_known(mode, owner, uid, path, gap):
    host = machine(
        {f"{path}/x": ""}, env=HOME | {"HF_HUB_CACHE": path}, modes={path: mode}, uids={path: owner}, user={"uid": uid}
    )
    found = looked(host)["hub.writable"]
    assert found.value is None and gap in found.gap


def test_a_file_in_the_place_of_the_cache():
    found = looked(machine({"/models": ""}, env=HOME | {"HF_HUB_CACHE": "/models"}))["hub.writable"]
    assert found.value is False


def test_without_a_home_there_is_no_cache():
    found = looked(machine(env={"PATH": "/usr/bin"}))
    assert "HOME" in found["disk.kind"].gap and "HOME" in found["hub.writable"].gap


# -- the path


@pytest.mark.parametrize(
    ("path", "unsafe"),
    [
        ("/usr/bin:/bin", ()),
        (".:/usr/bin", (".",)),
        ("/usr/bin:", ("",)),
        ("", ("",)),
        (":/usr/bin::/bin", ("",)),
        ("bin:/usr/bin:./x", ("bin", "./x")),
        ("/open:/usr/bin:/open", ("/open",)),
        ("/sticky", ()),
        ("/nowhere", ()),
        ("/openfile", ()),
        ("/hidden", ()),
    ],
)
def test_where_others_could_put_a_program(path, unsafe):
    files = {"/open/x": "", "/sticky/x": "", "/openfile": "", "/hidden": DENIED}
    modes = {"/open": 0o777, "/sticky": 0o1777, "/openfile": 0o777}
    found = looked(machine(files, env={"PATH": path, "HOME": "/home/u"}, modes=modes))["path.unsafe"]
    assert (found.value, found.source) == (unsafe, "PATH")


def test_no_path_at_all():
    assert looked(machine(env={"HOME": "/home/u"}))["path.unsafe"].value == ()


# -- the clock


@pytest.mark.parametrize(("seconds", "year"), [(0.0, 1970), (1_794_715_600, 2026), (4_102_444_800.5, 2100)])
def test_the_year(seconds, year):
    found = looked(machine(wall=seconds))["clock.year"]
    assert (found.value, found.source) == (year, "the clock")


@pytest.mark.parametrize("wall", [None, "noon", True, AccessError("dark"), 1e30, float("nan")])
def test_a_clock_that_shows_no_year(wall):
    found = looked(machine(wall=wall))["clock.year"]
    assert found.value is None and found.gap
