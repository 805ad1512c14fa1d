"""The run itself: its launcher, its ranks, its program."""
