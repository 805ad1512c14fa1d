"""Extract what a log contains, streaming. Nothing here judges or knows a cause: patterns are passed in.

    bytes -> excerpt -> lines -> tracebacks, exits, derived statements -> pattern matches: a LogSummary

- ``excerpt``  one pass over bytes of any size, in constant memory: the literal search decides what is kept
- ``literal_search``  many literals at once, by the words of the lines
- ``log_lines``  a line without its prefixes: rank, host, process, level, clock, place (nccl, kernel, launcher)
- ``line_forms``  undo JSON, a fixed width, tracebacks in one line
- ``log_prefixes``  prefixes of a whole log, induced from what repeats
- ``runs``  several runs in one file: the last one is read; newest lines first
- ``run_activity``  what one line says of a run: progress, a good end, a complaint
- ``native_errors``  errors that are no Python exception, and those that are quoted without their type
- ``tracebacks``, ``process_exits``, ``derived_lines``   what several lines say together
- ``stated_errors``  one wording for what a line says in many: errors of CUDA and NCCL
- ``log_patterns``  the text of a cause: literals with gaps and captures, and conditions

How to write a pattern: docs/how-to/add-a-rule.md.
"""
