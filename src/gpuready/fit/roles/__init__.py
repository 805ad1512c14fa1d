"""Several roles on shared GPUs, as reinforcement learning runs them."""
