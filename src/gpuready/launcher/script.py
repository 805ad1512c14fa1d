"""The command to run: a Python script, module or program; whether it can run here, and how its ranks start."""

import os
import re
import shlex
from collections.abc import Callable, Sequence
from difflib import get_close_matches

from gpuready.system import file_contents
from gpuready.system.files import open_regular

_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le", 22: "s390x"}
_TORCH_USERS = (
    "torch", "transformers", "accelerate", "lightning", "deepspeed", "colossalai", "trl", "axolotl", "vllm", "gpuready",
    "peft", "diffusers",
)  # fmt: skip
_IMPORTS_TORCH = re.compile(rf"^\s*(?:import|from) (?:{'|'.join(_TORCH_USERS)})\b", re.MULTILINE)
_IMPORTS, _SETS_VARIABLES = (
    re.compile(r"^(?:import|from) (\w+)", re.MULTILINE),
    re.compile(r"environ\[[^][\n]+\] *=[^=]|environ\.(?:setdefault|update|pop|clear)\(|putenv\("),
)
MAX_SCRIPT_BYTES = 1 << 20
CONFIG_SUFFIXES = (".yml", ".yaml", ".json", ".toml")


def read_script(path: str) -> str | None:
    """Return the text of a script; None if it cannot be read."""
    return file_contents.read_text_file(path, MAX_SCRIPT_BYTES)


def is_in_deleted_folder() -> bool:
    return not os.path.exists(os.path.realpath("/proc/self/cwd"))


def why_not_runnable(
    kind: str, words: Sequence[str], machine: str, which: Callable[[str], str | None]
) -> tuple[str, str]:
    """Return why it cannot be started, and the fix; both empty if it can."""
    if kind == "module":
        return "", ""
    path = words[0] if kind == "script" or "/" in words[0] else which(words[0]) or words[0]
    if not os.path.lexists(path):
        suggestion = _suggest_near_name(path)
        return f"{path} does not exist" + ("" if kind == "script" or "/" in path else ", here or on PATH"), suggestion
    if os.path.isdir(path):
        module = os.path.basename(path.rstrip("/"))
        return f"{path} is a folder", f"name the script in it, or a module: -- -m {module}"
    if path.endswith(CONFIG_SUFFIXES):
        reader = f"gpuready run -- -m axolotl.cli.train {shlex.quote(path)}"
        return f"{path} is a configuration file, not a script", f"start the program that reads it, such as {reader}"
    try:
        with open(path, "rb", opener=open_regular) as file:
            head = file.read(4096)
    except OSError as error:
        return f"{path} cannot be read: {error.strerror}", f"chmod u+r {path}"
    if not head:
        return f"{path} is empty", ""
    return ("", "") if kind == "script" else _check_program(path, head, machine)


def _suggest_near_name(path: str) -> str:
    folder = os.path.dirname(path) or "."
    try:
        close_matches = get_close_matches(os.path.basename(path), os.listdir(folder), 1, 0.6)
    except OSError:
        return f"the folder {folder} does not exist either"
    nearest = f"the nearest name there is {close_matches[0]}" if close_matches else ""
    return nearest or "the path counts from the current folder"


def _check_program(path: str, head: bytes, machine: str) -> tuple[str, str]:
    if head.startswith(b"\x7fELF"):
        built = _MACHINES.get(int.from_bytes(head[18:20], "little" if head[5] == 1 else "big"), "another machine")
        if built != machine:
            return f"{path} is built for {built}, and this machine is {machine}", f"build it for {machine}"
    if not os.access(path, os.X_OK):
        return f"{path} is not executable", f"chmod +x {path}, or give a Python script the ending .py"
    if head.startswith(b"#!"):
        return _check_shebang(path, head.split(b"\n", 1)[0][2:])
    if not head.startswith(b"\x7fELF"):
        says = f"{path} has no #! line, so the kernel does not know how to run it"
        return says, "begin it with a line such as #!/bin/bash"
    return "", ""


def _check_shebang(path: str, line: bytes) -> tuple[str, str]:
    if line.endswith(b"\r"):
        return f"{path} has the line ends of Windows (CRLF) after its #! line", f"sed -i 's/\\r$//' {path}"
    words = line.decode("utf-8", "replace").split()
    if not words or not os.path.exists(words[0]):
        interpreter = words[0] if words else "nothing"
        return f"{path} wants {interpreter} to run it, and that does not exist", "correct its first line"
    return "", ""


def can_fork_ranks(kind: str, words: Sequence[str], nproc: int, has_torch: bool) -> tuple[bool, str]:
    """Return whether torch may be imported once and the ranks forked, and why."""
    if kind == "program":
        return False, "each rank is a program of its own"
    if not has_torch:
        return False, "the environment has no torch to import"
    if nproc < 2:
        return False, "one rank imports for itself"
    path = words[0].replace(".", "/") + ".py" if kind == "module" else words[0]
    text = read_script(path)
    if text is None and kind != "module":
        return False, "the script cannot be read"
    if _sets_variables_first(text or "", os.path.dirname(path)):
        return False, "variables are set before torch is imported: each rank imports for itself"
    if kind != "module" and not any(name in (text or "") for name in _TORCH_USERS):
        return False, "the script names nothing that needs torch"
    return True, "torch is imported once, and the ranks are forked before any device is touched"


def _sets_variables_first(text: str, folder: str) -> bool:
    """Whether a script, or a module beside it that it imports, sets variables before it imports torch."""
    found = _IMPORTS_TORCH.search(text)
    head = text[: found.start()] if found else text
    beside = [read_script(os.path.join(folder, f"{name}.py")) or "" for name in _IMPORTS.findall(head)]
    return any(_SETS_VARIABLES.search(one) for one in (head, *beside))
