"""Which framework is an installation page about? Its title says, else what it clones and installs."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

TOPIC_WORDS = "cuda|gpu|nvidia|python|pytorch|distributed|environment|runtime|docker|training|rocm|multi|kubernetes"
OTHER_PROJECTS = (
    "torch", "pytorch", "torchvision", "torchaudio", "torchdata", "uv", "pip", "setuptools", "wheel", "ninja", "packaging",
    "numpy", "vllm", "sglang", "flash-attn", "flash-attention", "deepspeed", "ray", "apex", "xformers", "triton",
    "bitsandbytes", "transformers", "accelerate", "datasets", "peft", "trl", "cmake", "nvidia", "transformer-engine",
    "liger-kernel", "liger", "cuda",
)  # fmt: skip
"""What a page installs beside its own framework; one of them is the page's own only where nothing else is."""

_PAGE_TITLE = r"(?:Environment|Principle|Implementation|Heuristic|Workflow)\s*:"
_INSTALL = r"\bpip3?\s+install\b([^\n#&|]*)"
_CLONE = r"git clone\b[^\n]*?/([\w.-]+?)(?:\.git)?(?:[ \t]+([A-Za-z][\w.-]*))?(?:\s|$)"


def name_framework(title: str, codes: Iterable[str], file_stem: str) -> str:
    """Return the name of a page's framework, in lower case."""
    if re.match(_PAGE_TITLE, title):
        return _name_in_title(title.partition(":")[2])
    named = _most_installed("\n".join(codes), title)
    return named or _name_in_title(title or file_stem)


def _name_in_title(title: str) -> str:
    """Parse ``Org Name CUDA GPU`` -> ``name``: the last word before the first topic word, its owner not counted."""
    words = re.findall(r"[A-Za-z][A-Za-z0-9.-]*", title.replace("_", " "))
    topic = next((i for i, w in enumerate(words) if i and re.fullmatch(TOPIC_WORDS, w, re.I)), len(words))
    before = words[:topic] or ["page"]
    is_repeated = before[-1].lower() in [word.lower() for word in before[:-1]]  # Vllm project Vllm
    own = [word for word in before if word.lower() not in OTHER_PROJECTS or is_repeated] or before
    is_short = len(own[-1]) <= 3 and len(own) > 1 and len(own[-2]) > 3  # Megatron LM
    return ("-".join(own[-2:]) if is_short else own[-1]).lower()


def _most_installed(code: str, title: str) -> str:
    """Return the package that the commands of a page are about: cloned and installed, named in the title, or most often."""
    packages = [name for line in re.findall(_INSTALL, code) for name in _package_names(line)]
    cloned = [(folder or name).lower() for name, folder in re.findall(_CLONE, code + "\n")]
    votes: dict[str, int] = {}
    for name in [*packages, *cloned]:
        if name not in OTHER_PROJECTS:
            votes[name] = votes.get(name, 0) + 1
    for name in votes:
        votes[name] += 3 * any(_is_same_project(name, other) for other in cloned)
        votes[name] += 4 * any(_is_same_project(name, word.lower()) for word in re.findall(r"[\w-]{3,}", title))
        votes[name] += name in packages
    return max(votes, key=lambda name: votes[name]) if votes else ""


def _package_names(arguments: str) -> list[str]:
    """Return the names in the arguments of ``pip install``; files, addresses and options are none."""
    words = re.findall(r"(?<![\w./-])[\"']?([A-Za-z][\w.-]*)(?:\[[\w,\s-]*\])?(?=[\s\"'=<>!~;@]|$)", arguments)
    return [re.sub(r"[-_.]+", "-", word).lower() for word in words if not word.endswith((".txt", ".toml", ".whl"))]


def _is_same_project(a: str, b: str) -> bool:
    """Whether two spellings are of one project: ``megatron-core`` and ``megatron-lm``, ``ms-swift`` and ``swift``."""
    first, second = re.sub(r"[^a-z0-9]", "", a), re.sub(r"[^a-z0-9]", "", b)
    return first == second or a.split("-")[0] == b.split("-")[0] or (len(second) > 4 and first.endswith(second))
