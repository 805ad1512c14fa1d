"""Rules across the nodes of a fleet."""
