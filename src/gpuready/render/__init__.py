"""Report to text and JSON. Renderers format; they never look and never decide."""
