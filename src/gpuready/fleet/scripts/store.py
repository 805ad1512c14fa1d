"""Runs in the target environment inside a torchrun job: nodes exchange requests and answers through the
agents' store.

    python store.py FILE      FILE: one line of JSON (role, store, this node), then the stdin of a node's Python

Roles: ``nodes`` and ``ask`` on the first node, ``serve`` on every other one until it is asked to end.
"""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta


def send_line(orders, word, node, text=""):
    line = "%s %s %s %s\n" % (orders["mark"], word, node, " ".join(text.split("\n")))
    sys.stdout.write(line.encode("ascii", "backslashreplace").decode("ascii"))
    sys.stdout.flush()


def open_store(orders):
    from torch.distributed import TCPStore

    return TCPStore(orders["address"], orders["port"], None, False, timedelta(seconds=orders["join"]))


def store_key(orders, *words):
    return "/".join(("gpuready", orders["run"], *map(str, words)))


def own_description(orders):
    """Describe this node: its host, and the address from which it reaches the store."""
    import socket

    address = ""
    try:
        resolved = socket.getaddrinfo(orders["address"], orders["port"], type=socket.SOCK_DGRAM)[0]
        with socket.socket(resolved[0], socket.SOCK_DGRAM) as probe:
            probe.connect(resolved[4])
            address = probe.getsockname()[0]
    except OSError:
        pass
    return json.dumps({"host": orders["host"], "address": address})


def read_key_if_set(store, name):
    return store.get(name).decode("utf-8", "backslashreplace") if store.check([name]) else None


def list_store_nodes(store, orders):
    store.set(store_key(orders, "hello", orders["node"]), own_description(orders))
    left, until = list(range(orders["nodes"])), time.monotonic() + orders["join"]
    while left and time.monotonic() < until:
        for node in list(left):
            text = read_key_if_set(store, store_key(orders, "hello", node))
            if text is not None:
                left.remove(node)
                send_line(orders, "node", node, text)
        time.sleep(0.05)


def start_node_python(orders, name, data):
    """Start this node's Python with its stdin."""
    child = subprocess.Popen(
        [orders["python"], "-I", "-c", orders["starter"], name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    import threading

    out = []

    def read_child_output():
        out.append(child.communicate(data)[0][: 2 * orders["cap"]].decode("utf-8", "backslashreplace"))

    thread = threading.Thread(target=read_child_output, daemon=True)
    thread.start()
    return child, thread, out


def collect_node_output(child, thread, out, orders, seconds):
    """Return the marked lines of a node's Python, or a line that says it was slow."""
    thread.join(seconds)
    if thread.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        return "%s slow - gpuready was not done within %g s" % (orders["mark"], seconds)
    lines = [line for line in "".join(out).splitlines() if line.startswith(orders["mark"] + " ")]
    return "\n".join(lines) or "%s refused - its Python ended without an answer" % orders["mark"]


def ask_over_store(store, orders, data):
    """Publish the request, answer for this node, and report each node's output as it arrives."""
    from base64 import b64encode

    turn = orders["turn"]
    names = {int(node): name for node, name in orders["names"].items()}
    request = {"data": b64encode(data).decode(), "names": names, "seconds": orders["seconds"]}
    store.set(store_key(orders, "ask", turn), json.dumps(request))
    own = start_node_python(orders, names[orders["node"]], data) if orders["node"] in names else None
    left, until = set(names) - {orders["node"]}, time.monotonic() + orders["seconds"] + orders["late"]
    while (left or own) and time.monotonic() < until:
        if own and not own[1].is_alive():
            relay_lines(orders, names[orders["node"]], collect_node_output(*own, orders, 0.1))
            own = None
        for node in list(left):
            text = read_key_if_set(store, store_key(orders, "answer", turn, node))
            if text is not None:
                left.remove(node)
                relay_lines(orders, names[node], text)
        time.sleep(0.02)
    if own:
        relay_lines(orders, names[orders["node"]], collect_node_output(*own, orders, 0.1))
    for node in left:
        send_line(
            orders, "slow", names[node], "no answer in the store within %g s" % (orders["seconds"] + orders["late"])
        )


def relay_lines(orders, name, text):
    for line in text.splitlines():
        word, _, rest = line[len(orders["mark"]) + 1 :].partition(" ")
        send_line(orders, word, name, rest.partition(" ")[2])


def serve_store_requests(store, orders):
    """Answer requests until asked to end, or until none has come for ``idle`` seconds."""
    from base64 import b64decode

    store.set(store_key(orders, "hello", orders["node"]), own_description(orders))
    turn, until = 0, time.monotonic() + orders["idle"]
    while time.monotonic() < until:
        text = read_key_if_set(store, store_key(orders, "ask", turn))
        if text is None:
            time.sleep(0.05)
            continue
        if text == "end":
            return
        request = json.loads(text)
        name = request["names"].get(str(orders["node"]))
        if name is not None:
            parts = start_node_python(orders, name, b64decode(request["data"]))
            answer = collect_node_output(*parts, orders, request["seconds"])
            store.set(store_key(orders, "answer", turn, orders["node"]), answer)
        turn, until = turn + 1, time.monotonic() + orders["idle"]


def main(argv):
    with open(argv[0], "rb") as file:
        orders = json.loads(file.readline().decode("ascii"))
        data = file.read()
    try:
        store = open_store(orders)
        if orders["role"] == "serve":
            serve_store_requests(store, orders)
        elif orders["role"] == "nodes":
            list_store_nodes(store, orders)
        elif orders["role"] == "end":
            store.set(store_key(orders, "ask", orders["turn"]), "end")
        else:
            ask_over_store(store, orders, data)
    except Exception as error:
        words = [line for line in str(error).strip().splitlines() if line.strip()]
        send_line(orders, "engine", "-", "%s: %s" % (type(error).__name__, (words or [""])[0][:300]))
    send_line(orders, "end", "-")


if __name__ == "__main__":
    sys.path.pop(0)
    main(sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)
