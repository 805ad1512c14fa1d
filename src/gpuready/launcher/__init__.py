"""ACT: ``gpuready run``: look before the start, start the ranks, watch them, and say why they died."""
