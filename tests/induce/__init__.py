"""A generator of truth: provokes real failures and records what they say, with their known cause.

``make induce`` provokes everything this machine can show (induce.py: rooms.py makes the environments, the themes
hold the cases, stage.py runs one and records it) and writes corpus/THEME.jsonl. On a machine with an NVIDIA GPU,
``python -m tests.induce.gpu OUT`` writes OUT/gpu-corpus.jsonl, to be kept as corpus/gpu.jsonl. corpus.load() gives
the cases to tests.
"""
