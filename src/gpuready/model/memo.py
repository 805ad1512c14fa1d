"""``functools.lru_cache`` without ``functools``, whose import costs a quarter of the start of Python: every check pays."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from functools import cache, lru_cache
else:
    try:
        from _functools import _lru_cache_wrapper
    except ImportError:  # another Python than CPython
        from functools import cache, lru_cache
    else:

        def lru_cache(size):
            """Keep results of a function by its arguments, ``size`` of them: functools' wrapper without its module."""

            def wrap_function(function):
                kept = _lru_cache_wrapper(function, size, False, lambda *counts: counts)
                kept.__name__, kept.__doc__, kept.__wrapped__ = function.__name__, function.__doc__, function
                return kept

            return wrap_function

        cache = lru_cache(None)

__all__ = ["cache", "lru_cache"]
