"""Memory of the GPUs."""
