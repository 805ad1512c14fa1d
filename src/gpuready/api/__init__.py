"""The commands as Python functions."""
