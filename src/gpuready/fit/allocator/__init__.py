"""A model of torch's caching allocator."""
