"""Runs in the target environment inside a torchrun job: nodes exchange requests and answers through the
agents' store.

    python store.py FILE      FILE: one line of JSON (role, store, this node), then the stdin of a node's Python

Roles: ``nodes`` and ``ask`` on the first node, ``serve`` on every other one until it is told to end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta


def say(told, word, node, text=""):
    line = "%s %s %s %s\n" % (told["mark"], word, node, " ".join(text.split("\n")))
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stdout.flush()


def opened(told):
    from torch.distributed import TCPStore

    return TCPStore(told["address"], told["port"], None, False, timedelta(seconds=told["join"]))


def key(told, *words):
    return "/".join(("gpuready", told["run"], *map(str, words)))


def mine(told):
    """Describe this node: its host, and the address from which it reaches the store."""
    import socket

    address = ""
    try:
        found = socket.getaddrinfo(told["address"], told["port"], type=socket.SOCK_DGRAM)[0]
        with socket.socket(found[0], socket.SOCK_DGRAM) as probe:
            probe.connect(found[4])
            address = probe.getsockname()[0]
    except OSError:
        pass
    return json.dumps({"host": told["host"], "address": address})


def seen(store, name):
    return store.get(name).decode("utf-8", "backslashreplace") if store.check([name]) else None


def listed(store, told):
    store.set(key(told, "hello", told["node"]), mine(told))
    left, until = list(range(told["nodes"])), time.monotonic() + told["join"]
    while left and time.monotonic() < until:
        for node in list(left):
            text = seen(store, key(told, "hello", node))
            if text is not None:
                left.remove(node)
                say(told, "node", node, text)
        time.sleep(0.05)


def begun(told, name, data):
    """Start this node's Python with its stdin."""
    child = subprocess.Popen(
        [told["python"], "-c", told["starter"], name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    import threading

    out = []

    def talk():
        out.append(child.communicate(data)[0][: 2 * told["cap"]].decode("utf-8", "backslashreplace"))

    thread = threading.Thread(target=talk, daemon=True)
    thread.start()
    return child, thread, out


def ended(child, thread, out, told, seconds):
    """Return the marked lines of a node's Python, or a line that says it was slow."""
    thread.join(seconds)
    if thread.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        return "%s slow - gpuready was not done within %g s" % (told["mark"], seconds)
    lines = [line for line in "".join(out).splitlines() if line.startswith(told["mark"] + " ")]
    return "\n".join(lines) or "%s refused - its Python ended without an answer" % told["mark"]


def asked(store, told, data):
    """Publish the request, answer for this node, and report each node's output as it arrives."""
    from base64 import b64encode

    turn = told["turn"]
    names = {int(node): name for node, name in told["names"].items()}
    order = {"data": b64encode(data).decode(), "names": names, "seconds": told["seconds"]}
    store.set(key(told, "ask", turn), json.dumps(order))
    own = begun(told, names[told["node"]], data) if told["node"] in names else None
    left, until = set(names) - {told["node"]}, time.monotonic() + told["seconds"] + told["late"]
    while (left or own) and time.monotonic() < until:
        if own and not own[1].is_alive():
            wrote(told, names[told["node"]], ended(*own, told, 0.1))
            own = None
        for node in list(left):
            text = seen(store, key(told, "answer", turn, node))
            if text is not None:
                left.remove(node)
                wrote(told, names[node], text)
        time.sleep(0.02)
    if own:
        wrote(told, names[told["node"]], ended(*own, told, 0.1))
    for node in left:
        say(
            told, "slow", names[node], "no answer in the store within %g s" % (told["seconds"] + told["late"])
        )


def wrote(told, name, text):
    for line in text.splitlines():
        word, _, rest = line[len(told["mark"]) + 1 :].partition(" ")
        say(told, word, name, rest.partition(" ")[2])


def served(store, told):
    """Answer requests until told to end, or until none has come for ``idle`` seconds."""
    from base64 import b64decode

    store.set(key(told, "hello", told["node"]), mine(told))
    turn, until = 0, time.monotonic() + told["idle"]
    while time.monotonic() < until:
        text = seen(store, key(told, "ask", turn))
        if text is None:
            time.sleep(0.05)
            continue
        if text == "end":
            return
        order = json.loads(text)
        name = order["names"].get(str(told["node"]))
        if name is not None:
            parts = begun(told, name, b64decode(order["data"]))
            answer = ended(*parts, told, order["seconds"])
            store.set(key(told, "answer", turn, told["node"]), answer)
        turn, until = turn + 1, time.monotonic() + told["idle"]


def main(argv):
    with open(argv[0], "rb") as file:
        told = json.loads(file.readline().decode("ascii"))
        data = file.read()
    try:
        store = opened(told)
        if told["role"] == "serve":
            served(store, told)
        elif told["role"] == "nodes":
            listed(store, told)
        elif told["role"] == "end":
            store.set(key(told, "ask", told["turn"]), "end")
        else:
            asked(store, told, data)
    except Exception as error:
        words = [line for line in str(error).strip().splitlines() if line.strip()]
        say(told, "engine", "-", "%s: %s" % (type(error).__name__, (words or [""])[0][:300]))
    say(told, "end", "-")


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
