"""Small wheels, locks of them, and the command that installs them: real uv, real environments."""

from __future__ import annotations

import base64
import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.forks import is_of_a_start
from tests.running import QUIET, SRC, Run, run_forked

META = "Metadata-Version: 2.1\nName: {}\nVersion: {}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {}\n"


def wheel(
    folder: Path,
    name: str,
    version: str,
    files: Mapping[str, str | bytes] | None = None,
    script: str = "",
    needs: tuple[str, ...] = (),
    tag: str = "py3-none-any",
) -> Path:
    """A wheel with these files; without any, a package of its name that knows its version. Made again it is the same file."""
    folder.mkdir(parents=True, exist_ok=True)
    module = name.replace("-", "_")
    path, info = folder / f"{module}-{version}-{tag}.whl", f"{module}-{version}.dist-info"
    inside = dict(files or {f"{module}/__init__.py": f"VERSION = {version!r}\ndef main(): print(VERSION)\n"})
    asked = "".join(f"Requires-Dist: {need}\n" for need in needs)
    inside |= {f"{info}/METADATA": META.format(name, version) + asked, f"{info}/WHEEL": WHEEL.format(tag)}
    if script:
        inside[f"{info}/entry_points.txt"] = f"[console_scripts]\n{script} = {name}:main\n"
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for at, text in inside.items():
            data = text if isinstance(text, bytes) else text.encode()
            file.writestr(zipfile.ZipInfo(at), data, zipfile.ZIP_DEFLATED)
            result = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{at},sha256={result},{len(data)}\n")
        file.writestr(zipfile.ZipInfo(f"{info}/RECORD"), "".join(rows) + f"{info}/RECORD,,\n")
    return path


def lock(path: Path, *wheels: Path) -> Path:
    """A lock of these wheels, by their hashes."""
    lines = []
    for one in wheels:
        name, version = one.name.split("-")[:2]
        result = hashlib.sha256(one.read_bytes()).hexdigest()
        lines.append(f"{name}=={version} --hash=sha256:{result}\n")
    path.write_text("".join(lines))
    return path


class Bench:
    """A folder of wheels, a cache of uv's own, and an environment to be."""

    def __init__(self, folder: Path):
        self.folder, self.wheels, self.home = folder, folder / "wheels", folder / "env"
        self.many = {f"alpha/part{i}.py": f"X = {i}\n" * 20 for i in range(60)}
        self.locks = {version: self.alpha(version) for version in ("1.0", "2.0")}

    def alpha(self, version: str) -> Path:
        """A framework with many files, and a second package of the same version."""
        start = {"alpha/__init__.py": f"VERSION = {version!r}\ndef main(): print(VERSION)\n"}
        pair = [wheel(self.wheels, "alpha", version, start | self.many, "alpha"), wheel(self.wheels, "beta", version)]
        return lock(self.folder / f"{version}.lock", *pair)

    @property
    def env(self) -> dict[str, str]:
        found = QUIET | {
            "PYTHONPATH": str(SRC),
            "UV_CACHE_DIR": str(self.folder / "cache"),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        return found | {"UV_OFFLINE": "1", "PIP_CONFIG_FILE": "/dev/null", "TMPDIR": str(self.folder)}

    def argv(self, version: str = "1.0", *more: str, home: Path | None = None) -> list[str]:
        words = ["install", "alpha", "--lock", str(self.locks[version]), "--find-links", str(self.wheels)]
        return [*words, "--python", sys.executable, "-e", str(home or self.home), *more]

    def start(
        self, *argv: str, before: str = "", env: dict[str, str] | None = None, **more: object
    ) -> subprocess.Popen[str]:
        """The command, started; `before` is run in its process first."""
        code = f"{before}\nfrom gpuready.cli import main\nmain()"
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        words = [sys.executable, "-c", code, *argv]
        return subprocess.Popen(words, env=self.env | (env or {}), **(pipes | more))  # type: ignore[call-overload]

    def run(self, *argv: str, **more: Any) -> Run:
        if set(more) <= {"cwd", "env"} and not is_of_a_start(more.get("env", {})):
            return run_forked(argv, self.env | more.get("env", {}), more.get("cwd"))
        process = self.start(*argv, **more)
        out, err = process.communicate(timeout=120)
        return Run(process.returncode, out, err)

    def install(self, version: str = "1.0", *more: str, **options: object) -> Run:
        return self.run(*self.argv(version, *more), **options)

    # -- what stands there --------------------------------------------------------------------------------

    def version(self, home: Path | None = None) -> str:
        """The version that the whole environment is of; empty where there is none; an error where it is half."""
        at = home or self.home
        python = at / "bin" / "python"
        if not python.exists():
            assert not (at / "current").exists(), "a link to an environment without Python"
            return ""
        code = "import alpha, beta; from alpha import part0, part59; assert alpha.VERSION == beta.VERSION; print(alpha.VERSION)"
        done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, env={"PATH": "/usr/bin:/bin"})
        assert done.returncode == 0, f"half an environment: {done.stderr}"
        return done.stdout.strip()

    def complete(self) -> list[str]:
        found = (self.home / "installs").glob("*/gpuready.json")
        return sorted(path.parent.name for path in found)

    def site(self) -> Path:
        (found,) = (self.home / "lib").glob("python3*/site-packages")
        return found

    def whole(self, home: Path | None = None, code: int = 0) -> None:
        """The environment is as it was published, file by file; 3: no file differs, and another user's gpuready made it."""
        ran = self.run("install", "--verify", "-e", str(home or self.home))
        assert ran.code == code, ran.out + ran.err


def owned(pid: int) -> list[int]:
    """The children of a process, by their numbers."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1] == str(pid):
                found.append(int(name))
        except OSError:
            continue
    return found
