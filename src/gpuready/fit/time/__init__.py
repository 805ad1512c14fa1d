"""Predict the time of a job from the kernels on its tape."""
