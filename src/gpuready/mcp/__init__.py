"""gpuready as tools of a coding agent, over the Model Context Protocol. Needs the extra ``gpuready[mcp]``."""
