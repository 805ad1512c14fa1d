"""The machine around the GPUs."""
