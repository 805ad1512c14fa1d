"""Modules of distributions that have another name."""

from __future__ import annotations

USUAL_MODULES = {
    "pyyaml": "yaml", "pillow": "PIL", "scikit-learn": "sklearn", "opencv-python": "cv2", "protobuf": "google",
    "python-dateutil": "dateutil", "beautifulsoup4": "bs4", "attrs": "attr", "gitpython": "git", "antlr4-python3-runtime": "antlr4",
    "opencv-python-headless": "cv2", "hydra-core": "hydra", "pytorch-lightning": "pytorch_lightning", "python-dotenv": "dotenv",
}  # fmt: skip
"""Modules of distributions that have another name. What is not installed has no files that tell."""


def list_usual_modules(name: str) -> tuple[str, ...]:
    """The modules that a distribution most likely has."""
    plain = name.replace("-", "_")
    return (USUAL_MODULES.get(name, plain), plain, plain.removeprefix("python_").removesuffix("_python"))
