"""First program on a node: takes gpuready from a shared folder or from stdin, runs it and cleans up.

Sent as text; runs on any Python 3 and reports one that is too old. stdin: one line of JSON (the orders),
then, if the orders say so, the file with gpuready. Every line for the controller begins with the mark, so
that login banners are not taken for answers.
"""

import json
import os
import sys

MIN_PYTHON = (3, 10)


def send_line(orders, word, node, text=""):
    """Write one line for the controller: mark, word (hello, answer, need, refused, slow), node, text."""
    line = "\n%s %s %s %s\n" % (orders["mark"], word, node, " ".join(text.split("\n")))
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stdout.flush()


def sees_controller_files(orders):
    """Whether the controller's gpuready is at the same path here, by size and time of its files."""
    try:
        for path, size, stamp in orders["home"]["files"]:
            found = os.stat(os.path.join(orders["home"]["path"], path))
            if (found.st_size, found.st_mtime_ns) != (size, stamp):
                return False
    except (OSError, KeyError, TypeError):
        return False
    return True


def unpack_gpuready(orders, stream, folder):
    """Receive and verify the file with gpuready and unpack it."""
    import hashlib
    import zipfile

    path = os.path.join(folder, "gpuready.pyz")
    left, seen = orders["size"], hashlib.sha256()
    with open(path, "wb") as file:
        while left:
            part = stream.read(min(left, 1 << 16))
            if not part:
                raise ValueError("the file with gpuready ended %d bytes too early" % left)
            left -= len(part)
            seen.update(part)
            file.write(part)
    if seen.hexdigest() != orders["sha256"]:
        raise ValueError("the file with gpuready arrived damaged")
    home = os.path.join(folder, "gpuready")
    with zipfile.ZipFile(path) as pack:
        pack.extractall(home)
    return home


def run_node_program(orders, node, home):
    """In the child: run the node program and send its line."""
    import importlib

    sys.path[:0] = [home]
    sys.path += orders["home"].get("dependencies", [])
    importlib.import_module("gpuready.system").LiveHost.runs_command = True
    program = importlib.import_module(orders["program"])
    send_line(orders, "answer", node, program.answer_node_request(orders["request"], node))


def run_with_deadline(orders, node, home):
    """Run the node program in its own process group and kill it at the deadline."""
    import signal
    import time

    until = time.monotonic() + orders["deadline"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            run_node_program(orders, node, home)
            code = 0
        except BaseException as error:
            first_line = "".join(str(error).strip().splitlines()[:1])[:250]
            plain = isinstance(error, ValueError) or type(error).__name__ == "Refused"
            send_line(
                orders,
                "refused",
                node,
                first_line if plain and first_line else "%s: %s" % (type(error).__name__, first_line),
            )
        finally:
            os._exit(code)
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if os.WIFSIGNALED(status):
                send_line(orders, "refused", node, "gpuready was ended there by signal %d" % os.WTERMSIG(status))
            return
        time.sleep(0.01)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    send_line(orders, "slow", node, "gpuready was not done within %g s" % orders["deadline"])


def main(stream, node):
    orders = json.loads(stream.readline().decode("ascii"))
    send_line(orders, "hello", node)
    if sys.version_info < MIN_PYTHON:
        here = ".".join(str(part) for part in sys.version_info[:3])
        words = "%s is Python %s, and gpuready needs %d.%d or newer: name another with --python"
        return send_line(orders, "refused", node, words % (sys.executable, here, MIN_PYTHON[0], MIN_PYTHON[1]))
    if sees_controller_files(orders):
        return run_with_deadline(orders, node, orders["home"]["path"])
    if not orders["size"]:
        return send_line(orders, "need", node)
    import shutil
    import tempfile

    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="gpuready-")
        run_with_deadline(orders, node, unpack_gpuready(orders, stream, folder))
    except (OSError, ValueError) as error:
        send_line(orders, "refused", node, "gpuready could not be put there: %s" % error)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
