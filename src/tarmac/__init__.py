"""tarmac: from a bare GPU machine to one proven ready for an LLM framework."""

__version__ = "0.1.0.dev0"
