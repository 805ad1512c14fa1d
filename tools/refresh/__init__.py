"""How tools/refresh_catalog.py reads an index and writes what it learned into the catalogue."""
