"""One server and one browser for each module of these tests."""

from __future__ import annotations

from tests.browser import browser
from tests.web.served import server

__all__ = ["browser", "server"]
