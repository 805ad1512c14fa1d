"""Generated: the contracts in a form that loads fast."""
