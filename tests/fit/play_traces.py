"""Runs in the target environment: play many traces after one import, each in a forked process.

Arguments: the folder of the trace scripts, and a file with the requests by name. Written is one file with the replies: the
trace, or the sentence with which the process ended.
"""

import contextlib
import importlib.util
import io
import json
import os
import sys


def play(trace, request):
    """Return the reply of one request."""
    sys.argv, sys.stdout = ["trace", json.dumps(request)], io.StringIO()
    try:
        trace.trace_or_exit()
    except SystemExit as ended:
        return {"ended": str(ended)}
    return json.loads(sys.stdout.getvalue().strip().rpartition("\n")[2])


def main():
    sys.path.insert(0, sys.argv[1])
    spec = importlib.util.spec_from_file_location("trace_job", f"{sys.argv[1]}/trace.py")  # not the standard library's
    trace_job = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(trace_job)
    from torch.fx.experimental import symbolic_shapes  # noqa: F401  # with sympy: four seconds in every child otherwise

    with contextlib.suppress(ImportError):  # small_transformers.py has none of it
        import peft  # noqa: F401
        from transformers import AutoModel, generation, masking_utils, modeling_utils  # noqa: F401
        from transformers.models.llama import modeling_llama  # noqa: F401

    with open(sys.argv[2]) as file:
        requests = json.load(file)
    for name, request in requests.items():
        child = os.fork()
        if child == 0:
            with open(f"{sys.argv[2]}.{name}", "w") as file:
                file.write(json.dumps(play(trace_job, request)))
            os._exit(0)
        os.waitpid(child, 0)


main()
