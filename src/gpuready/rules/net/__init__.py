"""The way to the other GPUs and the other machines."""
