"""Renderers: records to text, JSON and HTML. They format; they never probe and never judge."""
