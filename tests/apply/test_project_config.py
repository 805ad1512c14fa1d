"""A uv.toml or pyproject.toml of the current folder, or above it, may be a stranger's: it rules nothing unless asked for."""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
from pathlib import Path

import pytest

from gpuready.apply import uv, uv_config
from gpuready.apply.resolve import resolve_plan
from gpuready.apply.uv_output import find_failed_searches
from tests.apply.asking import contract, default, need, row
from tests.apply.local_index import Index
from tests.apply.wheels import lock, wheel

EVIL = "raise SystemExit('stolen')\n"


def sdist(folder: Path, name: str, version: str, mark: Path) -> None:
    """The source of a package that leaves a mark when it is built, or asked what it requires."""
    folder.mkdir(parents=True, exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    files = {"PKG-INFO": metadata, "pyproject.toml": project, "backend.py": f"open({str(mark)!r}, 'w')\n"}
    with tarfile.open(folder / f"{name}-{version}.tar.gz", "w:gz") as file:
        for path, text in files.items():
            member = tarfile.TarInfo(f"{name}-{version}/{path}")
            member.size = len(text)
            file.addfile(member, io.BytesIO(text.encode()))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder deep in a repository of a stranger, which is the current one."""
    folder = tmp_path / "repository" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def own_index(world, index) -> None:
    """Let the user's own settings, and not a variable, name the index."""
    del world.variables["UV_DEFAULT_INDEX"]
    config = Path(world.variables["HOME"]) / ".config/uv/uv.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[[index]]\nurl = "{index.url("main")}"\ndefault = true\n')


@pytest.mark.parametrize("where", ["here", "above", "workspace", "temporary"])
def test_an_index_of_the_project_is_never_asked(world, index, project, tmp_path, where):
    own_index(world, index)
    evil = Index(tmp_path / "evil")
    evil.add("filelock", "99.0", files={"filelock/__init__.py": EVIL})
    table = f'url = "{evil.url("main")}"\n'
    if where == "here":
        (project / "uv.toml").write_text(f"[[index]]\n{table}")
    elif where == "above":
        (project.parent / "pyproject.toml").write_text(f"[[tool.uv.index]]\n{table}")
    else:  # a folder for temporary files belongs to everybody
        parent = project.parent if where == "workspace" else tmp_path
        members = '[tool.uv.workspace]\nmembers = ["*", "*/*"]\n'
        text = f'[project]\nname = "evil"\nversion = "0"\n{members}[[tool.uv.index]]\n{table}'
        (parent / "pyproject.toml").write_text(text)
    found = resolve_plan(world, default(), contract())
    assert row(found, "filelock").version == "4.0" and not evil.asked
    evil.close()


def test_a_project_that_was_asked_for_rules_and_is_shown(world, index, project, tmp_path):
    (project / "uv.toml").write_text(f'cache-dir = "{tmp_path}/poisoned"\n[[index]]\nurl = "{index.url("project")}"\n')
    index.add("filelock", "4.5", on="project")
    del world.variables["UV_CACHE_DIR"]
    world.variables["XDG_CACHE_HOME"] = str(tmp_path / "cache")
    found = resolve_plan(world, default(), contract(), use_project_config=True)
    assert row(found, "filelock").version == "4.5"
    shown = " ".join(found.notes)
    assert f"{project}/uv.toml (cache-dir, index)" in shown and f"({project}/uv.toml)" in shown
    assert not (tmp_path / "poisoned").exists() and (tmp_path / "cache/uv").is_dir()


def test_the_users_own_index_is_honoured_and_named_on_the_screen_and_in_the_lock(world, index):
    own_index(world, index)
    found = resolve_plan(world, default(), contract())
    host = index.url().partition("://")[2].partition("/")[0]
    assert {one.index for one in found.lock} == {f"own:{host}"}
    assert f"packages come from the index of {host} ({world.variables['HOME']}/.config/uv/uv.toml)" in found.notes
    from gpuready.render.plan import describe_torch_source

    assert describe_torch_source(found) == f"the index of {host}"


def test_a_login_in_an_address_is_never_named(world, index):
    world.variables["UV_DEFAULT_INDEX"] = index.url("main").replace("://", "://me:s3cr3t-pw@")
    found = resolve_plan(world, default(), contract())
    assert row(found, "filelock").index.startswith("own:127.0.0.1:")
    assert "s3cr3t-pw" not in json.dumps(found.to_json())


def test_relative_paths_in_variables_mean_the_users_folder(world, project):
    world.variables |= {
        "UV_CACHE_DIR": "my cache",
        "UV_INDEX": "corp=./simple https://x/y",
        "UV_CONSTRAINT": "a.txt /b",
    }
    env = uv.make_uv_settings(world).env
    assert env["UV_CACHE_DIR"] == f"{project}/my cache" and env["UV_CONSTRAINT"] == f"{project}/a.txt /b"
    assert env["UV_INDEX"] == f"corp={project}/simple https://x/y"
    assert f"{project}/simple" in uv_config.list_configured_indexes(world, False)


def test_a_python_version_file_is_not_followed(world, project, tmp_path):
    mark = tmp_path / "ran"
    (project / "python").write_text(f'#!/bin/sh\ntouch {mark}\nexec {sys.executable} "$@"\n')
    (project / "python").chmod(0o755)
    (project / ".python-version").write_text(f"{project}/python\n")
    (tmp_path / ".python-version").write_text(f"{project}/python\n")
    found = uv.find_python(world, uv.find_uv(world), uv.make_uv_settings(world), "")
    assert found and found != f"{project}/python" and not mark.exists()
    named = uv.find_python(world, uv.find_uv(world), uv.make_uv_settings(world), "./python")
    assert named and mark.exists(), "a path that the user names is meant"


@pytest.fixture
def inactive_shim(world, tmp_path):
    """pyenv's launcher of a Python that is not active, alone on PATH."""
    root = tmp_path / "pyenv"
    (root / "shims").mkdir(parents=True)
    shim = root / "shims" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    shim.write_text('#!/bin/sh\necho "pyenv: python: command not found" >&2\nexit 127\n')
    shim.chmod(0o755)
    world.variables["PATH"] = f"{root}/shims"
    world.variables["UV_PYTHON_INSTALL_DIR"] = str(tmp_path / "none")
    return shim


def test_behind_a_pyenv_launcher_that_is_not_active_its_python_is_found(world, inactive_shim):
    version = ".".join(map(str, sys.version_info[:3]))
    real = inactive_shim.parents[1] / "versions" / version / "bin"
    real.mkdir(parents=True)
    (real / "python").symlink_to(Path(sys.executable).resolve())
    minor = version.rpartition(".")[0]
    for request in (minor, version, f"{minor}.99"):
        found = uv.find_python(world, uv.find_uv(world), uv.make_uv_settings(world), request)
        assert found == str(real / "python")


def test_a_launcher_behind_another_python_on_path_is_seen_too():
    """uv then warns of it and goes on, with other words."""
    for where, words in (("error", "first executable in the search path"), ("warning", "search path")):
        said = f"{where}: Failed to inspect Python interpreter from {words} at `/p/shims/python3.13`\n  cause: x\n"
        assert uv._find_broken_launcher(said) == "/p/shims/python3.13"
    assert uv._find_broken_launcher("error: No interpreter found for Python 3.13 in search path") == ""


def test_a_launcher_that_starts_no_python_is_named_in_one_sentence(world, inactive_shim):
    minor = f"{sys.version_info[0]}.{sys.version_info[1]}"
    with pytest.raises(ValueError, match=r"is first on PATH for Python .* and starts none") as refused:
        uv.find_python(world, uv.find_uv(world), uv.make_uv_settings(world), minor)
    assert str(refused.value).startswith(str(inactive_shim)) and "--python PATH" in str(refused.value)


# -- sources --------------------------------------------------------------------------------------------------


def test_a_plan_builds_nothing_unless_agreed(world, tmp_path):
    folder, mark = tmp_path / "wheels", tmp_path / "built"
    wheel(folder, "hydra", "2.0", needs=("antlr==4.9.3",))
    wheel(folder, "hydra", "0.1")
    sdist(folder, "antlr", "4.9.3", mark)
    asked = contract(need("hydra", "*"))
    found = resolve_plan(world, default(), asked, find_links=(str(folder),))
    assert not found.lock and not mark.exists(), "an older hydra without antlr would be no plan of what was meant"
    assert "antlr 4.9.3: no wheel" in found.resolved and "--allow-build" in found.resolved
    pinned = resolve_plan(world, default(), contract(need("hydra", ">=1")), find_links=(str(folder),))
    assert pinned.verdict == "plan" and "antlr 4.9.3: no wheel" in pinned.resolved and not mark.exists()
    resolve_plan(world, default(), asked, find_links=(str(folder),), allow_build=True)
    assert mark.exists(), "agreed: then uv asks it"


def test_what_the_catalogue_knows_of_a_package_without_wheel_is_stated(world, index, tmp_path, monkeypatch):
    mark = tmp_path / "built"
    index.add("hydra", "2.0", ["antlr==4.9.3"])
    index.add("hydra", "0.1")
    index.add("kestrel", "1.0")
    sdist(index.folder / "main", "antlr", "4.9.3", mark)

    def resolve(version: str):
        known = {"antlr": {"name": "antlr", "version": version, "requires": ["kestrel"]}}
        monkeypatch.setattr("gpuready.catalog.indexes.source_only_packages", lambda: known)
        world.variables["XDG_CACHE_HOME"] = str(tmp_path / version)
        return resolve_plan(world, default(), contract(need("hydra", "*")))

    found = resolve("4.9.3")
    assert [row(found, name).version for name in ("hydra", "antlr", "kestrel")] == ["2.0", "4.9.3", "1.0"]
    assert any("--allow-build" in note and "antlr 4.9.3" in note for note in found.notes)
    other = resolve("4.8")
    assert row(other, "antlr").version == "4.9.3", "known of another version only: the index says what this one needs"
    assert "kestrel" not in {locked.name for locked in other.lock}
    index.add("kestrel", "2.0")
    known = {"antlr": {"name": "antlr", "version": "4.8", "requires": ["kestrel>=2"]}}
    monkeypatch.setattr("gpuready.catalog.indexes.source_only_packages", lambda: known)
    asked = contract(need("hydra", "*"), need("kestrel", "==1.0"))
    pinned = resolve_plan(world, default(), asked)
    assert pinned.lock, f"a conflict with what another version needs proves nothing: {pinned.conflicts}"
    assert not mark.exists()


def test_a_search_that_failed_is_read_from_the_log_of_the_resolver():
    log = (
        "DEBUG Searching for a compatible version of hydra (*)\nDEBUG Selecting: hydra==2.0 [compatible] (x.whl)\n"
        "DEBUG Searching for a compatible version of antlr4_x (>=4.9.3, <4.9.3+)\nDEBUG Recording unit propagation\n"
        "DEBUG Searching for a compatible version of hydra (<=0.1)\nDEBUG Selecting: hydra==0.1 [compatible] (y.whl)\n"
    )
    assert find_failed_searches(log) == ("antlr4-x",)
    assert find_failed_searches(log + "DEBUG Searching for a compatible version of last (*)\n") == ("antlr4-x", "last")


# -- installs -------------------------------------------------------------------------------------------------


def reported(ran) -> dict:
    return json.loads(ran.out)


def test_an_install_is_ruled_by_no_project(bench):
    """A target would leave the environment empty, a cache could hold other files under good hashes."""
    project = bench.folder / "project"
    project.mkdir()
    (project / "uv.toml").write_text(f'cache-dir = "{project}/poisoned"\n[pip]\ntarget = "{project}/outside"\n')
    ran = bench.install("1.0", cwd=project)
    assert ran.code == 0, ran.out + ran.err
    assert bench.version() == "1.0" and sorted(os.listdir(project)) == ["uv.toml"]


def test_an_empty_environment_is_never_published(bench):
    """The user's own settings may say target: what the lock names has to be there all the same."""
    (bench.folder / "uv").mkdir()
    (bench.folder / "uv/uv.toml").write_text(f'[pip]\ntarget = "{bench.folder}/outside"\n')
    ran = bench.install("1.0", "--json", env={"XDG_CONFIG_HOME": str(bench.folder)})
    assert ran.code == 1 and reported(ran)["verdict"] == "failed" and "not installed" in reported(ran)["says"]
    assert not (bench.home / "current").exists()


def poison_cache(bench) -> None:
    """Change a file of uv's cache, and the RECORD beside it so that it agrees."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    (path,) = (bench.folder / "cache").rglob("alpha/part7.py")
    record = path.parent.parent / "alpha-1.0.dist-info/RECORD"
    path.unlink()
    path.write_text(EVIL)
    digest = urlsafe_b64encode(sha256(EVIL.encode()).digest()).rstrip(b"=").decode()
    rows = [r for r in record.read_text().splitlines() if not r.startswith("alpha/part7.py")]
    record.unlink()
    record.write_text("\n".join([*rows, f"alpha/part7.py,sha256={digest},{len(EVIL)}", ""]))


def test_a_poisoned_cache_is_found_by_the_wheel_of_the_lock(bench):
    bench.install("1.0")
    other = bench.folder / "other"
    poison_cache(bench)
    ran = bench.run(*bench.argv("1.0", "--json", home=other))
    assert ran.code == 0 and reported(ran)["verdict"] == "installed", ran.out + ran.err
    assert "damaged on arrival: alpha" in ran.err
    (kept,) = (other / "current/").glob("lib/python3*/site-packages/alpha/part7.py")
    assert kept.read_text() != EVIL


def test_verify_compares_with_the_wheels_of_the_lock(standing):
    site = standing.site()
    manifest = (standing.home / "current/gpuready.json").resolve()
    verify = ["install", "--verify", "-e", str(standing.home), "--json"]
    whole = reported(standing.run(*verify, "--find-links", str(standing.wheels)))
    assert whole["verdict"] == "intact" and whole["need"]["compared"] == 2 and not whole["notes"]
    _poison_installed(site, manifest)
    unreadable = reported(standing.run(*verify))
    assert unreadable["verdict"] == "undecided", "the manifest is none that this user's gpuready has written"
    assert "0 of 2 packages were compared with the wheels" in unreadable["notes"][0]
    seen = reported(standing.run(*verify, "--find-links", str(standing.wheels)))
    assert [(fault["kind"], fault["path"].rpartition("/")[2]) for fault in seen["faults"]] == [("changed", "part7.py")]


def _poison_installed(site: Path, manifest: Path) -> None:
    """Change a file, its RECORD and the manifest, so that they agree with each other."""
    from base64 import urlsafe_b64encode
    from hashlib import sha256

    path, record = site / "alpha/part7.py", site / "alpha-1.0.dist-info/RECORD"
    path.unlink()
    path.write_text(EVIL)
    digest = urlsafe_b64encode(sha256(EVIL.encode()).digest()).rstrip(b"=").decode()
    rows = [r for r in record.read_text().splitlines() if not r.startswith("alpha/part7.py")]
    record.unlink()
    record.write_text("\n".join([*rows, f"alpha/part7.py,sha256={digest},{len(EVIL)}", ""]))
    known = json.loads(manifest.read_text())
    known["records"]["alpha"] = sha256(record.read_bytes()).hexdigest()
    manifest.write_text(json.dumps(known))


# -- wheels that overreach ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "beta-6.0.data/data/pyvenv.cfg",
        "beta-6.0.data/data/bin/python3",
        "_0_gpuready.pth",
        f"beta-6.0.data/data/lib64/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages/_gpuready_generation.py",
    ],
)
def test_a_wheel_over_the_environments_own_files_is_refused(bench, path):
    pair = [
        wheel(bench.wheels, "alpha", "6.0"),
        wheel(bench.wheels, "beta", "6.0", {"beta/__init__.py": "", path: EVIL}),
    ]
    bench.locks["6.0"] = lock(bench.folder / "6.0.lock", *pair)
    ran = bench.install("6.0", "--json")
    assert ran.code in (1, 2) and reported(ran)["verdict"] == "failed", ran.out + ran.err
    says = reported(ran)["says"]  # uv refuses another Python itself
    assert ("belongs to the environment itself" in says or "reserved name" in says) and "beta" in says
    assert not (bench.home / "current").exists()


def test_scripts_that_only_sound_like_it_are_taken(tmp_path):
    from gpuready.apply.wheel_contents import _is_environment_file

    taken = ("bin/python-argcomplete-check", "bin/activate-global-python-argcomplete", "bin/pip", "share/pyvenv.cfg")
    assert not any(map(_is_environment_file, taken))
    site = "lib/python3.12/site-packages"
    assert all(
        map(_is_environment_file, ("bin/python3.13t", "bin/Activate.ps1", f"{site}/~gpuready.pth", "pyvenv.cfg"))
    )
    assert all(map(_is_environment_file, ("bin/activate", "gpuready.json", f"{site}/_0_gpuready.pth")))


def test_sitecustomize_is_noted_like_a_pth_file_that_runs(tmp_path):
    from gpuready.apply.audit import list_startup_code

    site = tmp_path / "lib/python3.12/site-packages"
    (site / "loud-1.0.dist-info").mkdir(parents=True)
    (site / "loud.pth").write_text("hidden\n")
    rows = (
        "sitecustomize.py",
        "usercustomize/__init__.py",
        "hidden/sitecustomize.py",
        "pkg/sitecustomize.py",
        "loud.pth",
    )
    (site / "loud-1.0.dist-info/RECORD").write_text("".join(f"{name},,\n" for name in rows))
    assert list_startup_code(str(tmp_path)) == [
        "__init__.py of loud", "sitecustomize.py of loud", "sitecustomize.py of loud",
    ]  # fmt: skip
