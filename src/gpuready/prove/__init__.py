"""LOOK by doing: proofs run in the target environment's Python, each in its own process."""
