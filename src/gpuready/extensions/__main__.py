"""Build gpuready's kernels ahead of time: ``python -m gpuready.extensions [--arch LIST] [-o DIR]``.

Without -o they go into this package, which is searched first. What cannot be built is listed with the reason.
Exit codes: 0 built, 1 nothing could be built, 2 bad usage.
"""

from __future__ import annotations

import sys

from gpuready.extensions import ahead
from gpuready.extensions.ours import OURS
from gpuready.extensions.recipe import CannotBuild

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main(words: Sequence[str]) -> int:
    from argparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m gpuready.extensions", description="Build gpuready's kernels ahead of time."
    )
    parser.add_argument("--arch", default="", help="architectures, as in TORCH_CUDA_ARCH_LIST: '8.0;9.0+PTX'")
    parser.add_argument(
        "-o", "--output", default=ahead.INSIDE, metavar="DIR", help="where to (default: this package)"
    )
    parser.add_argument("--only", choices=("cuda", "cpu"), help="build one kind only")
    told = parser.parse_args(words)
    wanted = [one for one in OURS if told.only in (None, one.kind)]
    from os.path import abspath

    try:
        made, left = ahead.build(wanted, abspath(told.output), told.arch)
    except (CannotBuild, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for entry in made:
        print(f"{entry.path}  {' '.join(entry.targets) or entry.inputs['machine']}  {entry.seconds:.1f}s")
    for name, why in left.items():
        print(f"not built: {name}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
