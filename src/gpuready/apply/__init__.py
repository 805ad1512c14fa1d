"""Resolve, fetch and install a plan, atomically."""
