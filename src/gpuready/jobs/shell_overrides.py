"""Read the ``key=value`` settings that a shell script passes to verl. The text is parsed and never run."""

from __future__ import annotations

import ast
import operator
import re
import shlex
from typing import Any

from gpuready.jobs import config_reader

MAX_WORDS = 20_000
MAX_NESTED = 5
ARITHMETIC = r"\$\(\((.{1,200}?)\)\)(?!\))"
ROOT_KEYS = ("actor_rollout_ref.", "trainer.", "data.", "algorithm.", "critic.", "reward_model.", "rollout.")


def read_shell_overrides(text: str, name: str) -> dict[str, Any]:
    """Return the settings of a script as a mapping. ValueError, one sentence, where it passes none."""
    words, values = _split_script(text, name)
    config: dict[str, Any] = {}
    for word in words:
        key, equals, value = _expand(word, values).lstrip("+").partition("=")
        if equals and key.startswith(ROOT_KEYS):
            _set_dotted(config, key, _parse_scalar(value))
    if "actor_rollout_ref" not in config:
        raise ValueError(f"{name} passes no settings of a job that is known here (verl's actor_rollout_ref.…)")
    if "megatron" in text and not _has_strategy(config):
        _set_dotted(config, "actor_rollout_ref.actor.strategy", "megatron" if _names_megatron(words) else "fsdp")
    return config


def _split_script(text: str, name: str) -> tuple[list[str], dict[str, str]]:
    """Return all words of a script, arrays spread out, and its variables."""
    joined = re.sub(r"\\\r?\n", " ", text)
    joined = re.sub(ARITHMETIC, lambda found: "".join(found[0].split()), joined)  # one word each
    values: dict[str, str] = {}
    words: list[str] = []
    for line in joined.splitlines():
        try:
            parts = shlex.split(
                line.replace("(", " ( ").replace(")", " ) ") if re.match(r"\s*\w+\+?=\(", line) else line, comments=True
            )
        except ValueError:  # a quotation over several lines
            parts = line.split()
        for part in parts:
            stated = re.fullmatch(r"(?:export\s+)?([A-Za-z_]\w*)=(.*)", part, re.DOTALL)
            if stated and "." not in stated[1]:
                values[stated[1]] = _expand(stated[2], values)
        words += parts
        if len(words) > MAX_WORDS:
            raise ValueError(f"{name} has more than {MAX_WORDS} words, which no job's script has")
    return words, values


def _expand(text: str, values: dict[str, str]) -> str:
    """Replace variables and plain sums; what the script computes stays as it is."""

    def replace_variable(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        known = values.get(name, "")
        return known if known or default is None else default.lstrip(":-")

    out = text
    for _ in range(MAX_NESTED):  # the innermost first
        before, out = out, re.sub(r"\$\{(\w+)(:?-[^{}]*)?\}|\$([A-Za-z_]\w*)", replace_variable, out)
        if out == before:
            break
    out = out.replace('"', "").replace("'", "") if "[" not in out and "{" not in out else out
    return re.sub(ARITHMETIC, lambda found: _compute(found[1], values), out)


def _compute(text: str, values: dict[str, str]) -> str:
    """Compute the arithmetic of whole numbers and variables; the text itself where it is anything else."""
    known = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}

    def evaluate(node: ast.AST) -> int:
        if isinstance(node, ast.Constant) and isinstance(node.value, int):
            return node.value
        if isinstance(node, ast.Name):
            return int(values.get(node.id, ""))
        if isinstance(node, ast.BinOp) and type(node.op) in known:
            return int(known[type(node.op)](evaluate(node.left), evaluate(node.right)))
        raise ValueError("no plain arithmetic")

    try:
        total = evaluate(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, SyntaxError, ArithmeticError, RecursionError, MemoryError):
        return text
    return str(total) if abs(total) < 1 << 62 else text


def _parse_scalar(value: str) -> Any:
    import yaml

    try:
        return yaml.load(value, config_reader.make_bounded_loader()) if len(value) < 2000 and "$" not in value else None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError):
        return value


def _set_dotted(config: dict[str, Any], key: str, value: Any) -> None:
    *outer, last = key.split(".")
    for part in outer:
        inner = config.setdefault(part, {})
        if not isinstance(inner, dict):
            inner = config[part] = {}
        config = inner
    config[last] = value


def _has_strategy(config: dict[str, Any]) -> bool:
    actor = config["actor_rollout_ref"].get("actor") if isinstance(config["actor_rollout_ref"], dict) else None
    return isinstance(actor, dict) and bool(actor.get("strategy"))


def _names_megatron(words: list[str]) -> bool:
    """Whether the script chooses verl's Megatron settings, or sets some of them."""
    return any(("config-name" in word and "megatron" in word) or ".megatron." in word for word in words)
