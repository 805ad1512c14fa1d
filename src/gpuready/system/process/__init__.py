"""Start, watch and end processes."""
