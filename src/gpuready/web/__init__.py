"""``gpuready serve``: the command line's results over HTTP, and a what-if page. Read-only."""
