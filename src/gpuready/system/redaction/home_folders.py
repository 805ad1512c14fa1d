"""Hide whose machine it was in text that is made to be sent elsewhere."""

import re

_OTHERS = r"(/(?:home|Users)/)(?!…)[^/\s'\"`:;,|()<>\[\]{}]+"


def hide_home_folders(text: str, home: str) -> str:
    """``/home/dana/env`` -> ``~/env`` where that is the home, else ``/home/…/env``; ``/data/dana`` -> ``/data/…``."""
    home = home.rstrip("/")
    if home:
        text = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", text)
    text = re.sub(_OTHERS, r"\1…", text)
    name = home.rpartition("/")[2]
    return re.sub(rf"(?<=/){re.escape(name)}(?![\w.-])", "…", text) if len(name) > 2 and name != "root" else text
