"""Extract what a log contains, streaming. Nothing here judges or knows a cause: patterns are passed in.

    bytes -> excerpt -> lines -> tracebacks, exits, derived statements -> pattern matches: a LogSummary

- ``excerpt``  one pass over bytes of any size, in constant memory: the literal search decides what is kept
- ``literal_search``  many literals at once (Hyperscan, or ``bytes.find`` over few short anchors)
- ``log_lines``  a line without its prefixes: rank, host, process, level, clock, place (nccl, kernel, launcher)
- ``tracebacks``, ``process_exits``, ``derived_lines``   what several lines say together
- ``wrapped_lines``  messages that a terminal or a web page broke over lines
- ``log_patterns``  the text of a cause: literals with gaps and captures, and conditions

How to write a pattern. ``PATTERNS`` of a rule is a tuple of strings, or of dicts where there are conditions; plain constants, because
``check`` loads them too:

    PATTERNS = (
        "The NVIDIA driver on your system is too old",
        "Tried to allocate {want}. GPU {gpu} has a total capacity of {total}",
        {"says": "CUDA error: out of memory", "with": ("pin_memory", "cudaHostAlloc"), "cause": "pinned-host-memory"},
    )

==========  ==================================================================================================
``says``    the text: ``{}`` a gap, ``{name}`` a capture (in one line), ``{...}`` a gap over lines; ``{{`` for a brace
``in``      where: exception, nccl, kernel, launcher, derived; omitted: anywhere. The text of a root elsewhere is a clue
``as``      root names the cause; symptom too, but yields to any root wherever it is; clue suggests it, and counts where no root
            matched and the run failed or is not seen alive afterwards; trace only accompanies
``with``    texts of which one is in the same block: the traceback with its chain, or eight lines before and after
``without`` texts of which none is there
``also``    texts of which one is anywhere in the logs
``unless``  texts of which none is anywhere
``when``    conditions on captures: ``free < want and held >= 0.4 * total``; sizes are understood
``cause``   the name of the cause, where the rule has several (catalog/causes.toml)
==========  ==================================================================================================
"""
