"""``python -m gpuready``: the same as the command."""

from gpuready.cli import main

main()
