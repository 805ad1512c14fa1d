"""Whether a Python environment would import, from its files alone: nothing of it is run or loaded."""
