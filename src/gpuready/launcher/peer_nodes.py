"""Agree with the gpuready of the other nodes on who failed first: under torchrun each node has one of its own.

What each node saw is a key of torchrun's store, and the order in which the keys came is the store's.
"""

import json
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import closing, suppress
from typing import Any

from gpuready.launcher import rank_votes
from gpuready.launcher.rank_ledger import RankLedger
from gpuready.launcher.stack_places import describe_place, list_ranks
from gpuready.launcher.standstill import STILL_SECONDS
from gpuready.model.run import EXIT_HUNG, LaunchJob, RankEnd
from gpuready.model.visible_text import cut_middle
from gpuready.rollcall import endpoint

_VALIDATE, _SET, _GET, _ADD, _CHECK = 0, 1, 3, 4, 5
_MAGIC = 0x3C85F7CE
_READY = 0
MAX_VALUE = 1 << 20


class StoreClient:
    """One connection to torch's TCPStore (TCPStoreBackend.hpp of torch 2.13); OSError if it does not answer in time."""

    def __init__(self, host: str, port: int, seconds: float):
        self.socket = socket.create_connection((host, port), seconds)
        self.socket.sendall(struct.pack("=BI", _VALIDATE, _MAGIC))

    def set_value(self, key: str, value: bytes) -> None:
        self.socket.sendall(struct.pack("=B", _SET) + _pack(key.encode()) + _pack(value))

    def add_one(self, key: str) -> int:
        """Count up and return the new count: the store decides who came first."""
        self.socket.sendall(struct.pack("=B", _ADD) + _pack(key.encode()) + struct.pack("=q", 1))
        return int(struct.unpack("=q", self._receive(8))[0])

    def get_value(self, key: str) -> bytes | None:
        """Return a value; None if there is none yet."""
        self.socket.sendall(struct.pack("=BQ", _CHECK, 1) + _pack(key.encode()))
        if self._receive(1)[0] != _READY:
            return None
        self.socket.sendall(struct.pack("=B", _GET) + _pack(key.encode()))
        length = struct.unpack("=Q", self._receive(8))[0]
        if length > MAX_VALUE:
            raise OSError("the store's value is too long")
        return self._receive(length)

    def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise OSError("the store has closed the connection")
            data += piece
        return data

    def close(self) -> None:
        self.socket.close()


def _pack(data: bytes) -> bytes:
    return struct.pack("=Q", len(data)) + data


ANSWER_SECONDS, SETTLE_SECONDS, READ_SECONDS = 2.0, 7.0, 1.0
"""Seconds: for the store to answer; for the other nodes to report, or to hear of it by their next beat; for them to read, before the
store's node stops."""
BEAT_SECONDS, SILENT_SECONDS = 5.0, 16.0
"""Seconds between the beats of a node, and after which one is not heard of."""
LAST_LINES, REFUSAL_SECONDS = 30, 10.0
AFTER_ALL = 1 << 30
"""The order of what a node saw when the store was gone already: after all that the store has counted."""


class PeerNodes:
    """The other nodes of one attempt."""

    def __init__(self, job: LaunchJob, number: int):
        self.job, self.prefix = job, f"gpuready/{job.run_id}/{number}"
        self.client: StoreClient | None = None
        self.reports: dict[int, dict[str, Any]] = {}
        self.published_at: float | None = None
        self.all_known_at: float | None = None
        self.store_lost = False
        self.beat_at, self.beats = 0.0, 0
        self.heard: dict[int, tuple[bytes, float]] = {}  # the last beat of each node, and when it was new here
        self.places: dict[int, dict[str, Any]] = {}  # host, addresses and ranks of each node
        self.failed_elsewhere = False
        self.stands = ""  # who keeps the others waiting on this node

    def exchange_beats(self, now: float) -> None:
        """Say that this node lives, and hear who else does; again after a while where the store did not answer."""
        if now - self.beat_at < BEAT_SECONDS:
            return
        self.beat_at, self.beats, self.store_lost = now, self.beats + 1, False
        own = f"{self.beats} {self.stands}".encode()
        self._call(lambda store: store.set_value(f"{self.prefix}/beat/{self.job.node_rank}", own))
        for node in range(self.job.nnodes):
            beat = self._call(lambda store, node=node: store.get_value(f"{self.prefix}/beat/{node}"))
            if node == 0 and not self.store_lost:
                beat = own  # its store has answered
            if beat is not None and self.heard.get(node, (b"", 0.0))[0] != beat:
                self.heard[node] = (beat, now)
            self._find_place(node)  # while the store is there
        # Ranks that have no connection yet, or no collective with that node, do not notice.
        if self.published_at is None and self._call(lambda store: store.get_value(f"{self.prefix}/order")) is not None:
            self.failed_elsewhere = True
            self._read_reports()  # while the store is there

    def leave_waiting(self, ledger: RankLedger) -> bool:
        """Whether another node has failed and the ranks of this one do nothing but wait; one that still saves is left alone."""
        waits = [bool(state.beats) and state.beats[-1].stuck >= STILL_SECONDS for state in ledger.living_ranks()]
        return self.failed_elsewhere and all(waits)

    def describe_other_nodes(self, now: float) -> str:
        """Name the nodes that were heard of and no longer are, and those that say who keeps the others waiting there."""
        says = [
            f"node {node} says that {text}"
            for node, (beat, _) in sorted(self.heard.items())
            if node != self.job.node_rank
            and (text := cut_middle(beat.decode("utf-8", "replace").partition(" ")[2], 400))
        ]
        silent = [
            f"node {node} ({place['host']}, {list_ranks(place['ranks'])}) has not been heard of for {now - at:.0f} s"
            for node, (_, at) in sorted(self.heard.items())
            for place in (self._find_place(node),)
            if node != self.job.node_rank and now - at >= SILENT_SECONDS
        ]
        return "; ".join([*silent[:8], *says[:8]])

    def _find_place(self, node: int) -> dict[str, Any]:
        """Return what a node has said of itself; where it has not, what follows from the command line."""
        if node not in self.places:
            text = self._call(lambda store: store.get_value(f"{self.prefix}/host/{node}"))
            if text:
                self.places[node] = json.loads(text)
        ranks = [*range(node * self.job.nproc, (node + 1) * self.job.nproc)]
        default = {"host": f"node {node}" if node else self.job.master, "addresses": [], "ranks": ranks}
        return self.places.get(node) or default

    def claim_place(self, host: str, ranks: Iterable[int]) -> str:
        """Say where this node is, with its ranks; return the host that has this place in the job already, else nothing."""
        place, node = f"{self.prefix}/host/{self.job.node_rank}", self.job.node_rank
        if (self._call(lambda store: store.add_one(f"{place}/claims")) or 0) > 1:
            return str(self._find_place(node)["host"])
        self.places[node] = {"host": host, "addresses": endpoint.list_own_addresses(), "ranks": list(ranks)}
        text = json.dumps(self.places[node]).encode()
        self._call(lambda store: store.set_value(place, text))
        return ""

    def tell_refusal(self, says: str, seconds: float = REFUSAL_SECONDS) -> None:
        """Tell the other nodes that this one will not start: in the store of node 0, as soon as it is there, or in its place."""
        text = f"node {self.job.node_rank} on {socket.gethostname()} refused: {says}".encode()
        deadline = time.monotonic() + seconds
        if not self.job.node_rank:
            with suppress(OSError, OverflowError):  # the next port is taken too
                self._answer_as_store(text, deadline)
        while self.job.node_rank and time.monotonic() < deadline:
            self.store_lost = False
            self._call(lambda store: store.set_value(f"{self.prefix}/refused", text))
            if self._call(lambda store: store.get_value(f"{self.prefix}/refused")):
                break
            time.sleep(0.2)
        self.close()

    def _answer_as_store(self, text: bytes, deadline: float) -> None:
        """Node 0 would hold the store: give this value to whoever asks for one there, until all others have it; where somebody
        has the port, which is the reason of the refusal, at the next one.
        """
        links, told = list[socket.socket](), 0
        try:
            place = endpoint.listen_on_port(self.job.port)
        except OSError:
            place = endpoint.listen_on_port(self.job.port + 1)
        with place:
            while told < self.job.nnodes - 1 and (left := deadline - time.monotonic()) > 0:
                place.settimeout(left)
                try:
                    links.append(place.accept()[0])
                    links[-1].settimeout(0.3)
                    links[-1].sendall(struct.pack("=B", _READY) + _pack(text))
                    told += any(b"/refused" in links[-1].recv(4096) for _ in range(3))  # torchrun asks for other keys
                except OSError:
                    continue
            time.sleep(0.2 if links else 0)  # before they are closed

    def find_other_nnodes(self, seconds: float = 0.0) -> str:
        """Tell the other nodes how many this one was told of, and say which node was told another number; ``seconds``: wait for theirs."""
        self.store_lost, key, deadline = False, f"{self.prefix}/nnodes", time.monotonic() + seconds
        own = str(self.job.nnodes).encode()
        self._call(lambda store: store.set_value(f"{key}/{self.job.node_rank}", own))
        while True:
            known = {n: self._call(lambda store, n=n: store.get_value(f"{key}/{n}")) for n in range(self.job.nnodes)}
            if self.store_lost or all(known.values()) or time.monotonic() > deadline:
                break
            time.sleep(0.1)
        counts = Counter(count for count in known.values() if count)
        usual = max(counts, key=lambda count: (counts[count], known[0] == count), default=own)
        odd = {node: int(count) for node, count in known.items() if count and count != usual}
        if odd and not self.job.node_rank:
            time.sleep(2 * READ_SECONDS)  # the others read it before this node's store ends
        names = ", ".join(f"node {node} with --nnodes {count}" for node, count in odd.items())
        return (
            f"the nodes were told different numbers of nodes: {names}, the others with --nnodes {int(usual)}"
            if odd
            else ""
        )

    def read_refusal(self) -> str:
        """What a node has said that will not start; empty as long as none has."""
        self.store_lost, key = False, f"{self.prefix}/refused"
        text = self._call(lambda store: store.get_value(key)) or self._ask_next_port(key)
        return str(text.decode("utf-8", "replace")) if text else ""

    def _ask_next_port(self, key: str) -> bytes | None:
        try:
            store = StoreClient(self.job.master, self.job.port + 1, READ_SECONDS)
            with closing(store):
                return store.get_value(key)
        except OSError:
            return None

    def describe_first(self, ledger: RankLedger, now: float) -> str:
        """Publish what failed here, and tell which of the failures that are known so far was the first."""
        self._exchange_reports(ledger, now)
        causes = [report for report in self.reports.values() if report["end"] is not None and not report["victim"]]
        ends = [RankEnd.from_json(min(causes, key=lambda report: report["order"])["end"])] if causes else []
        return rank_votes.describe_first([ends[0].rank], ends, self.job.world) if ends else ""

    def _exchange_reports(self, ledger: RankLedger, now: float) -> None:
        if self.published_at is None:
            self.beat_at = -BEAT_SECONDS
            self.exchange_beats(now)  # a beat that is new after this one is of a node that lives
            self.published_at, self.store_lost = now, False
            self._publish(ledger)
        self._read_reports()

    def is_settled(self, ledger: RankLedger, now: float) -> bool:
        """Publish what failed here, read what failed elsewhere; whether all nodes have reported, or had the time to."""
        self._exchange_reports(ledger, now)
        self.exchange_beats(now)
        if len(self.reports) == self.job.nnodes and self.all_known_at is None:
            self.all_known_at = now
        if self.all_known_at is not None:
            return bool(self.job.node_rank) or now - self.all_known_at >= READ_SECONDS
        return self.store_lost or now - (self.published_at or now) >= SETTLE_SECONDS

    def _read_reports(self) -> None:
        for node in range(self.job.nnodes):
            if node not in self.reports:
                text = self._call(lambda store, node=node: store.get_value(f"{self.prefix}/first/{node}"))
                if text:
                    self.reports[node] = json.loads(text)

    def _publish(self, ledger: RankLedger) -> None:
        failures = ledger.list_failures()
        named = ledger.first_failed_ranks(failures)
        first = [end for end in (*failures, *ledger.list_ends()) if end.rank in named]
        self._send_report(first[0] if first else None, not first or ledger.lost_its_peer(first[0]))

    def tell_hung(self, ledger: RankLedger, rank: int | None) -> None:
        """Tell the other nodes that this one ends its ranks, and for which one they wait: theirs will fail by it."""
        if (state := ledger.ranks.get(-1 if rank is None else rank)) is None:
            return self._send_report(None, True)
        seconds = round(time.monotonic() - ledger.started, 3)
        stood = f"in {describe_place(state).text}"
        end = RankEnd(state.rank, state.host, state.pid, EXIT_HUNG, 15, seconds=seconds, stopped=True, stood=stood)
        return self._send_report(end, False)

    def _send_report(self, end: RankEnd | None, victim: bool) -> None:
        shown = end.replace(last=end.last[-LAST_LINES:]).to_json() if end is not None else None
        report: dict[str, Any] = {"node": self.job.node_rank, "end": shown, "victim": victim}
        report["order"] = self._call(lambda store: store.add_one(f"{self.prefix}/order")) or AFTER_ALL
        text = json.dumps(report).encode()
        self._call(lambda store: store.set_value(f"{self.prefix}/first/{self.job.node_rank}", text))
        self.reports[self.job.node_rank] = report

    def find_first(self, ledger: RankLedger) -> list[RankEnd]:
        """Return the ends that all nodes call the first, if they are of another node: of a node that is gone all its ranks."""
        reports = [report for report in self.reports.values() if report["end"] is not None]
        causes = [report for report in reports if not report["victim"]]
        gone = self._find_lost_node(ledger) if not causes and self.published_at is not None else None
        if gone is not None:
            place = self._find_place(gone)
            return [RankEnd(int(rank), str(place["host"]), 0, 1, lost=True) for rank in place["ranks"]]
        chosen = min(causes or reports, key=lambda report: report["order"], default=None)
        return [] if chosen is None or chosen["node"] == self.job.node_rank else [RankEnd.from_json(chosen["end"])]

    def _find_lost_node(self, ledger: RankLedger) -> int | None:
        """Return the one node that has not reported and was not heard of since, or that the errors here name by its address."""
        missing = [node for node in range(self.job.nnodes) if node not in self.reports]
        silent = [
            n for n in missing if self.heard.get(n, (b"", 0.0))[1] <= (self.published_at or 0.0) and not self.store_lost
        ]
        if self.store_lost and 0 in missing:
            silent = [0]
        text = "\n".join(line for end in ledger.list_failed_ends() for line in end.last[-20:])
        named = [n for n in missing if any(f"[{a}]" in text for a in self._find_place(n)["addresses"])]
        both = [node for node in silent if node in named]
        return next((found[0] for found in (both, silent, named) if len(found) == 1), None)

    def explain_missing_nodes(self) -> tuple[str, str]:
        """Explain what torchrun waits for when no rank of this node has started, and the fix."""
        job, place = self.job, f"{self.job.master}:{self.job.port}"
        missing = [node for node in range(job.nnodes) if node != job.node_rank and node not in self.heard]
        if 0 in missing:
            reached = endpoint.test_reachability(job.master, job.port, 1.5)
            says = f"node 0 does not answer on {place}: {reached.why} {reached.detail}".rstrip()
            return says, "start node 0, or open the port between the nodes"
        if not missing:
            return f"all {job.nnodes} nodes have met at {place}, and torchrun starts no rank", "see what it says"
        who = f"node {missing[0]} is" if len(missing) == 1 else f"nodes {', '.join(map(str, missing[:16]))} are"
        fix = f"start gpuready run --nnodes {job.nnodes} --node-rank R --master {place} there, and open port {job.port} between the nodes"
        return f"{who} missing at {place}", fix

    def _call(self, request: Any) -> Any:
        """Ask the store; None if it does not answer."""
        if self.store_lost:
            return None
        try:
            if self.client is None:
                self.client = StoreClient(self.job.master, self.job.port, ANSWER_SECONDS)
            return request(self.client)
        except (OSError, ValueError):
            self.store_lost = True
            self.close()
            return None

    def close(self) -> None:
        if self.client is not None:
            self.client.close()
            self.client = None
