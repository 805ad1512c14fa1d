"""Ask many nodes the same question and compare their short answers."""
