"""Generated: what secrets look like."""
