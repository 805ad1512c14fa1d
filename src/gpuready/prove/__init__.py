"""LOOK by doing: proofs run in the patient's Python, each in a process of its own."""
