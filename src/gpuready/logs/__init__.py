"""Extract what a log contains, streaming. Nothing here judges or knows a cause: patterns are passed in.

    bytes -> excerpt -> lines -> tracebacks, exits, derived statements -> pattern matches: a LogSummary

- ``excerpt``  one pass over bytes of any size, in constant memory: the literal search decides what is kept
- ``literal_search``  many literals at once (Hyperscan, or ``bytes.find`` over few short anchors)
- ``log_lines``  a line without its prefixes: rank, host, process, level, clock, place (nccl, kernel, launcher)
- ``tracebacks``, ``process_exits``, ``derived_lines``   what several lines say together
- ``wrapped_lines``  messages that a terminal or a web page broke over lines
- ``log_patterns``  the text of a cause: literals with gaps and captures, and conditions

How to write a pattern: docs/how-to/add-a-rule.md.
"""
