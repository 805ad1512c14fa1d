"""Python and its packages."""
