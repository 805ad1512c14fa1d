"""Generated: the catalogue in a form that loads fast."""
