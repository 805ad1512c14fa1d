"""The GPUs themselves."""
