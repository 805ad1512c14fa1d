"""``python -m tarmac``: the same as the command."""

from tarmac.cli import main

main()
