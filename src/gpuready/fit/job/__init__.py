"""The job, its model's shape and the GPUs that it may run on."""
