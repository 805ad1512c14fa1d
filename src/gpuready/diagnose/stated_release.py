"""A package and its least release, where a refusal states both: ``requires the peft library >= 0.12``."""

from __future__ import annotations

from gpuready.diagnose.origin import KNOWN_PACKAGES
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.model.record import Record

_OTHERS = r"(?!(?:python3?|cuda|cudnn|nccl|gcc|g\+\+|glibc|nvcc|driver|nvidia|rocm|hip|compute|capability|version|the|you|an?)\b)"
_NAME = rf"[`'\"]?(?P<package>{_OTHERS}[A-Za-z][\w.-]{{1,40}})[`'\"]?"
_BOUND = r"(?: (?:package|library|version)){0,2} ?\(?(?P<bound>>=? ?v?\d{1,4}\.\d[\w.]{0,20}(?:, ?(?:<=?|!=) ?v?\d[\w.]{0,20}){0,9})"
_ASKED = LazyRegex(rf"(?i)\b(?:requires?|needs?|expects?|install|upgrade to) (?:the )?(?:package )?{_NAME}{_BOUND}")
_REQUIRED = LazyRegex(rf"(?i)(?:^|[\s(]){_NAME}{_BOUND}[`'\"]? (?:is|are) (?:required|needed)\b")


_LEAST = LazyRegex(
    rf"(?i)\b(?:upgrade|update) (?:your )?{_NAME} to (?:at least |version ){{1,2}}v?(?P<bound>\d{{1,4}}\.\d[\w.]{{0,20}})"
)


class StatedRelease(Record):
    """A requirement that a message states."""

    package: str
    bound: str

    @property
    def requirement(self) -> str:
        return f"{self.package}{self.bound}"

    @property
    def is_known(self) -> bool:
        return self.package.lower().replace("-", "_") in KNOWN_PACKAGES


def find_stated_release(error_type: str, message: str) -> StatedRelease | None:
    """The package of which a message asks for a release or newer: a known one, or one that an import asks for; else it may be a setting."""
    match = next((found for one in (_ASKED, _REQUIRED, _LEAST) if (found := one.search(message[:2000]))), None)
    if match is None:
        return None
    bound = match["bound"].replace(" ", "").replace(">v", ">").replace("=v", "=").replace("<v", "<").rstrip(".")
    stated = StatedRelease(match["package"], bound if bound[0] == ">" else f">={bound}")
    is_import = error_type in ("ImportError", "ModuleNotFoundError", "VersionConflict")
    return stated if stated.is_known or is_import else None
