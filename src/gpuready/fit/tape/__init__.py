"""A training step as a tape of allocations and frees."""
