"""Build kernels ahead of time: ``python -m gpuready.extensions [RECIPE ...] [--arch LIST] [-o DIR]``.

Without a recipe the example is built. Without -o they go into this package, which is searched first. What cannot be built is listed with the reason.
Exit codes: 0 built, 1 nothing could be built, 2 bad usage.
"""

import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from os.path import abspath

from gpuready.extensions import prebuild
from gpuready.extensions.example import EXAMPLE_EXTENSIONS
from gpuready.extensions.recipe import CannotBuild, read_recipe


def main(argv: Sequence[str]) -> int:
    parser = ArgumentParser(prog="python -m gpuready.extensions", description="Build kernels ahead of time.")
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="recipes in TOML (default: the example)")
    parser.add_argument("--arch", default="", help="architectures, as in TORCH_CUDA_ARCH_LIST: '8.0;9.0+PTX'")
    parser.add_argument(
        "-o", "--output", default=prebuild.PREBUILT_FOLDER, metavar="DIR", help="where to (default: this package)"
    )
    parser.add_argument("--only", choices=("cuda", "cpu"), help="build one kind only")
    arguments = parser.parse_args(argv)
    try:
        named = [read_recipe(path) for path in arguments.recipes] or EXAMPLE_EXTENSIONS
        wanted = [one for one in named if arguments.only in (None, one.kind)]
        made, skipped = prebuild.build_extensions(wanted, abspath(arguments.output), arguments.arch)
    except (CannotBuild, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for entry in made:
        print(f"{entry.path}  {' '.join(entry.targets) or entry.inputs['machine']}  {entry.seconds:.1f}s")
    for name, why in skipped.items():
        print(f"not built: {name}: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
