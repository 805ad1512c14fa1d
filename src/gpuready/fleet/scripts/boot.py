"""First program on a node: takes gpuready from a shared folder or from stdin, runs it and cleans up.

Sent as text; runs on any Python 3 and reports one that is too old. stdin: one line of JSON (the orders),
then, if the orders say so, the file with gpuready. Every line for the controller begins with the mark, so
that login banners are not taken for answers.
"""

import json
import os
import sys

LEAST = (3, 10)


def say(orders, word, node, text=""):
    """Write one line for the controller: mark, word (hello, answer, need, refused, slow), node, text."""
    line = "\n%s %s %s %s\n" % (orders["mark"], word, node, " ".join(text.split("\n")))
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stdout.flush()


def shared(orders):
    """Whether the controller's gpuready is at the same path here, by size and time of its files."""
    try:
        for path, size, stamp in orders["home"]["files"]:
            found = os.stat(os.path.join(orders["home"]["path"], path))
            if (found.st_size, found.st_mtime_ns) != (size, stamp):
                return False
    except (OSError, KeyError, TypeError):
        return False
    return True


def unpacked(orders, stream, folder):
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


def work(orders, node, home):
    """In the child: run the node program and send its line."""
    import importlib

    sys.path[:0] = [home]
    program = importlib.import_module(orders["program"])
    say(orders, "answer", node, program.line(orders["request"], node))


def attended(orders, node, home):
    """Run the node program in its own process group and kill it at the deadline."""
    import signal
    import time

    until = time.time() + orders["deadline"]
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setpgid(0, 0)
            work(orders, node, home)
            code = 0
        except BaseException as error:
            said = "".join(str(error).strip().splitlines()[:1])[:250]
            plain = isinstance(error, ValueError) or type(error).__name__ == "Refused"
            say(orders, "refused", node, said if plain and said else "%s: %s" % (type(error).__name__, said))
        finally:
            os._exit(code)
    while time.time() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            if os.WIFSIGNALED(status):
                say(orders, "refused", node, "gpuready was ended there by signal %d" % os.WTERMSIG(status))
            return
        time.sleep(0.01)
    try:
        os.killpg(child, signal.SIGKILL)
    except OSError:
        pass
    say(orders, "slow", node, "gpuready was not done within %g s" % orders["deadline"])


def main(stream, node):
    orders = json.loads(stream.readline().decode("ascii"))
    say(orders, "hello", node)
    if sys.version_info < LEAST:
        here = ".".join(str(part) for part in sys.version_info[:3])
        words = "%s is Python %s, and gpuready needs %d.%d or newer: name another with --python"
        return say(orders, "refused", node, words % (sys.executable, here, LEAST[0], LEAST[1]))
    if shared(orders):
        return attended(orders, node, orders["home"]["path"])
    if not orders["size"]:
        return say(orders, "need", node)
    import shutil
    import tempfile

    folder = ""
    try:
        folder = tempfile.mkdtemp(prefix="gpuready-")
        attended(orders, node, unpacked(orders, stream, folder))
    except (OSError, ValueError) as error:
        say(orders, "refused", node, "gpuready could not be put there: %s" % error)
    finally:
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
