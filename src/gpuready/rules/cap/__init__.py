"""What the GPUs can do."""
