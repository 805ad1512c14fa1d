"""ACT, inside the training process: what a script imports in the target environment."""
