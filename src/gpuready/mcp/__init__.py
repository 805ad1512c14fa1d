"""gpuready as tools of a coding agent, over the Model Context Protocol. The SDK is the extra ``gpuready[mcp]``."""
