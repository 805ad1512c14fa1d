"""Serving: the memory pool of an inference engine."""
