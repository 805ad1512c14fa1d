"""``gpuready run``: check before the start, start the ranks, watch them, and say why they failed."""
