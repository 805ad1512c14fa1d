"""Evaluate the rules over facts, and compare two reports."""
