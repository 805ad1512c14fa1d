"""``gpuready serve``: the answers of the command line over HTTP, and a page to ask what-if. Read-only."""
