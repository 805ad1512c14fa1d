"""One server for all of these tests, and one browser for a module."""

from __future__ import annotations

from tests.browser import browser
from tests.web.served import server

__all__ = ["browser", "server"]
