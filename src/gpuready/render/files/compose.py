"""A compose file: the plan's image, built from instructions inside, and the framework's own command."""

import json
from collections.abc import Iterator

from gpuready.model.plan import Plan
from gpuready.render.files import dockerfile, pins, quoting

_LIST_FLAGS = {
    "--device": "devices",
    "--group-add": "group_add",
    "--security-opt": "security_opt",
    "--cap-add": "cap_add",
}
_VALUE_FLAGS = {"--ipc": "ipc", "--shm-size": "shm_size"}
_GPU_LINES = (
    "    deploy:",
    "      resources:",
    "        reservations:",
    "          devices:",
    "            - {driver: nvidia, count: all, capabilities: [gpu]}",
)


def render(plan: Plan) -> str:
    layers = dockerfile.image_layers(plan)
    name = plan.framework.lower()
    lines = pins.header_comment(plan, "A compose file", f"docker compose run --rm {name}")
    lines += ["services:", f"  {name}:", "    build:", "      context: .", "      dockerfile_inline: |"]
    lines += [f"        {_escape(line)}".rstrip() for line in layers]
    lines += [f"    command: {_escape(quoting.quote_json_list(plan.start))}"] if plan.start else []
    lines += ["    working_dir: /workspace", "    volumes:", "      - .:/workspace", *_host_lines(plan)]
    return pins.join_lines(lines)


def _escape(text: str) -> str:
    """Compose replaces $NAME in every value; ``$$`` is a dollar."""
    return text.replace("$", "$$")


def _host_lines(plan: Plan) -> list[str]:
    """The settings that ``docker run`` takes as flags."""
    pairs, lines = list(_flag_pairs(plan.image_flags)), []
    lines += [f"    {_VALUE_FLAGS[flag]}: {_quote(value)}" for flag, value in pairs if flag in _VALUE_FLAGS]
    limits = [value.partition("=") for flag, value in pairs if flag == "--ulimit"]
    lines += ["    ulimits:", *(f"      {name}: {_quote(value)}" for name, _, value in limits)] if limits else []
    for flag, key in _LIST_FLAGS.items():
        values = [value for one, value in pairs if one == flag]
        lines += [f"    {key}:", *(f"      - {_quote(value)}" for value in values)] if values else []
    return [*lines, *(_GPU_LINES if any(flag == "--gpus" for flag, _ in pairs) else ())]


def _quote(value: str) -> str:
    number = value.lstrip("-").isdecimal()
    return value if number else _escape(json.dumps(value, ensure_ascii=False))


def _flag_pairs(flags: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """``--ipc=host --ulimit memlock=-1``: each flag with its value."""
    waiting = ""
    for word in flags:
        if waiting:
            yield waiting, word
            waiting = ""
        elif "=" in word:
            flag, _, value = word.partition("=")
            yield flag, value
        else:
            waiting = word
