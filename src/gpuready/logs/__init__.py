"""LOOK: text -> what it tells, streaming. Nothing here judges, and no cause is known by name: signs are handed in.

    bytes -> excerpt -> lines -> tracebacks, exits, derived statements -> sightings: a Story

- ``excerpt``  one pass over bytes of any size, in constant memory: the sieve decides what is kept
- ``sieve``    many literals at once (Hyperscan, or ``bytes.find`` over a cover of short anchors)
- ``lines``    a line without its wrapping: rank, host, process, level, clock, place (nccl, kernel, launcher)
- ``tracebacks``, ``exits``, ``derived``   what several lines say together
- ``wrapped``  messages that a terminal or a web page broke over lines
- ``sign``     the words of a cause: literals with gaps and captures, and conditions

How to write a sign. ``SIGNS`` of a rule is a tuple of strings, or of dicts where there are conditions; plain constants, because
``check`` loads them too:

    SIGNS = (
        "The NVIDIA driver on your system is too old",
        "Tried to allocate {want}. GPU {gpu} has a total capacity of {total}",
        {"says": "CUDA error: out of memory", "with": ("pin_memory", "cudaHostAlloc"), "cause": "pinned-host-memory"},
    )

==========  ==================================================================================================
``says``    the words: ``{}`` a gap, ``{name}`` a capture (in one line), ``{...}`` a gap over lines; ``{{`` for a brace
``in``      where: exception, nccl, kernel, launcher, derived; left out: anywhere. The words of a root elsewhere are a clue
``as``      root names the cause; symptom too, but yields to any root wherever it stands; clue suggests it, and counts where no root
            was seen and the run failed or is not seen alive afterwards; trace only accompanies
``with``    texts of which one stands in the same block: the traceback with its chain, or eight lines before and after
``without`` texts of which none stands there
``also``    texts of which one stands anywhere in the logs
``unless``  texts of which none stands anywhere
``when``    conditions on captures: ``free < want and held >= 0.4 * total``; sizes are understood
``cause``   the name of the cause, where the rule tells of several (catalog/causes.toml)
==========  ==================================================================================================
"""
