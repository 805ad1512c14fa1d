"""Start, watch and end processes.

`runner`: run programs, one to its end, many in parallel, or one in the background.
`isolation`: run our own functions in forked children that may hang or crash; the probes run so.
`worker_pool`: worker processes of a server, one request at a time.
`termination`: kill, wait for and collect children; what the three above are built on.
`inspection`: other processes, read from /proc.
"""
