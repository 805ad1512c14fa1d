"""Generated: the table of the rules."""
