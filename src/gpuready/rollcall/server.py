"""Rank 0's side of the roll-call: one loop in one thread that waits for no single connection."""

import os
import resource
import socket
import time
from contextlib import suppress

from gpuready.cluster import Rendezvous
from gpuready.rollcall import beacon, endpoint, job_secret, trial_connections, wire
from gpuready.rollcall.hello import Hello, describe_this_job, parse_hello
from gpuready.rollcall.job_secret import JobSecret
from gpuready.rollcall.line_server import LOCAL_PEER, LineConnection, LineServer
from gpuready.rollcall.rank_register import RankRegister, RollcallFault, RollcallOptions, format_rank_list

SPEAK_SECONDS = 3.0  # to say hello before being dropped; longer with many ranks
RANKS_PER_SECOND = 500  # ranks served in one second on a busy machine
SETTLE_SECONDS = 0.3  # after the first fault, for others like it
LINGER_SECONDS = 2.5  # after a refusal, for late ranks; less if the window has passed
MAX_STRANGERS = 512  # connections that have not sent a hello


class RollcallServer(LineServer):
    """A roll-call: collects hellos on a listening socket and sends all ranks the same answer."""

    def __init__(
        self,
        listener: socket.socket,
        rendezvous: Rendezvous,
        own_hello: Hello,
        options: RollcallOptions,
        secret: JobSecret,
    ) -> None:
        self.listener, self.rendezvous, self.own_hello, self.secret = listener, rendezvous, own_hello, secret
        self.window, self.on_progress = options.window, options.on_progress
        self.register = RankRegister(rendezvous, options.allow_skew)
        self.started = time.monotonic()
        self.until = self.started + min(options.window, own_hello.left)
        self.turned_away: dict[str, str] = {}
        self.answer: dict[str, object] | None = None
        self.answer_json = ""
        self.job_card = describe_this_job(rendezvous, own_hello.host) | {"family": own_hello.family}
        self.call_outcomes: dict[int, list[object]] = {}
        self.beacon = beacon.open_beacon(secret.name or wire.make_nonce())
        self.max_strangers = MAX_STRANGERS + rendezvous.world_size
        patience = SPEAK_SECONDS + rendezvous.world_size / RANKS_PER_SECOND
        super().__init__([sock for sock in (listener, self.beacon) if sock is not None], patience)
        self.register.add_own_hello(own_hello)

    # -- the loop -----------------------------------------------------------------------------------

    def gather_ranks(self, suspicion: RollcallFault | None = None, suspect_s: float = 3.0) -> list[RollcallFault]:
        """Collect hellos until all are there, a fault is certain, or the window has passed.

        A ``suspicion`` (a loopback address in a job with several nodes) becomes a fault unless a rank of
        another node arrives within ``suspect_s``.
        """
        settle = 0.0
        doubt_until = self.started + suspect_s if suspicion else 0.0
        while True:
            now = time.monotonic()
            if self.register.broken:
                settle = settle or now + SETTLE_SECONDS
                if now >= settle or (self.register.is_complete and not self.strangers):
                    return self.register.list_faults()
            elif self.register.is_complete:
                return []
            elif (
                suspicion
                and now >= doubt_until
                and max(self.register.present, default=0) < (self.rendezvous.local_world_size or 1)
            ):
                return [suspicion]
            elif now >= self.until:
                return self.register.window_fault(self.window, [*self.turned_away.values(), *self._stranger_note()])
            soonest = min(filter(None, (settle, self.until, doubt_until if suspicion else 0.0)))
            self.poll_events(max(0.0, min(soonest - now, 0.5)))
            self._report_progress(now)

    def run_trial_calls(self) -> list[RollcallFault]:
        """Have the leaders of several machines test the links between them."""
        leaders = self.register.node_leaders()
        if len(leaders) < 2:
            return []
        plan = trial_connections.plan_ring_calls([(rank, self._trial_address(rank)) for rank in leaders])
        for client in list(self.clients.values()):
            if client.hello is not None and client.hello.rank in plan:
                self._send_sealed(client, {"dial": plan[client.hello.rank]})
        self.call_outcomes[self.own_hello.rank] = trial_connections.run_trial_calls(plan[self.own_hello.rank])
        end = time.monotonic() + trial_connections.ALL_CALLS_SECONDS
        while not self.register.broken and len(self.call_outcomes) < len(plan) and time.monotonic() < end:
            self.poll_events(0.1)
        names = {rank: self.register.present[rank].rank_label for rank in leaders}
        self.register.remarks += trial_connections.find_slow_links(self.call_outcomes, names)
        return self.register.list_faults() or trial_connections.find_link_faults(plan, self.call_outcomes, names)

    def announce_answer(self, faults: list[RollcallFault], suspicion: RollcallFault | None = None) -> None:
        """Send the answer to all; after a refusal also to those who still come, for a while."""
        self.register.remarks += self._stranger_note()
        go = {"nodes": self.register.list_machines(), "notes": self.register.list_notes()[:20]}
        self.answer = {"refused": [fault.to_json() for fault in faults]} if faults else {"go": go}
        for client in list(self.clients.values()):
            if client.hello is not None:
                self._send_sealed(client, self.answer)
        window_passed = time.monotonic() >= self.until or (suspicion is not None and faults == [suspicion])
        end = time.monotonic() + (0.5 if window_passed else LINGER_SECONDS) if faults else time.monotonic() + 5.0
        while time.monotonic() < end and self._has_waiting_ranks(bool(faults)):
            self.poll_events(0.05)

    def close(self) -> None:
        """Close everything but the listener, which torch's store takes over."""
        self.close_clients()
        if self.beacon is not None:
            self.beacon.close()
        self.listener.setblocking(True)

    # -- helpers ------------------------------------------------------------------------------------

    def _stranger_note(self) -> list[str]:
        """Describe the connections that were no rank's."""
        found = self.dropped
        return (
            [f"{found} connection{'s' * (found > 1)} that {'were' if found > 1 else 'was'} no rank's"] if found else []
        )

    def _has_waiting_ranks(self, refused: bool) -> bool:
        """Whether a rank still has to be informed: after a refusal all expected ranks, else those with unsent data."""
        register = self.register
        came = len(register.present) + len(register.troubled) + len(register.misplaced)
        if refused and came < self.rendezvous.world_size:
            return True
        return bool(refused and self.strangers) or any(client.unsent for client in self.clients.values())

    def _report_progress(self, now: float) -> None:
        waited = now - self.started
        if (
            self.on_progress is not None
            and waited > 5
            and int(waited / 5) > int(getattr(self, "_last_progress", 0.0) / 5)
        ):
            self._last_progress = waited
            absent = self.register.missing_ranks()
            world = self.rendezvous.world_size
            self.on_progress(f"waiting for {format_rank_list(absent)} of {world} ({waited:.0f} of {self.window:g} s)")

    def _trial_address(self, rank: int) -> tuple[str, int]:
        """Return where a leader can be called: its chosen interface, else the address seen here."""
        name, port = self.register.present[rank].data
        if not name and rank != self.own_hello.rank:
            name = next((g.where for g in self.clients.values() if g.hello and g.hello.rank == rank), "")
        return name or self._own_seen_address(), port

    def _own_seen_address(self) -> str:
        """Return the address at which the others reached this host."""
        for client in self.clients.values():
            if client.hello is not None and client.hello.machine != self.own_hello.machine:
                return str(client.conn.getsockname()[0]).removeprefix("::ffff:")
        return self.rendezvous.address

    # -- connections --------------------------------------------------------------------------------

    def handle_line(self, client: LineConnection, line: bytes) -> None:
        if not client.greeted:
            is_stranger = client.where == LOCAL_PEER and not beacon.is_own_user(client.conn)
            if is_stranger or not line.startswith(wire.GREETING):
                self.drop_client(client, counted=True)
                return
            client.greeted = True
            self.queue_bytes(client, wire.GREETING + wire.encode_message(self._build_greeting(client), "", ""))
            return
        try:
            message = self._decode_line(client, line)
            if client.hello is not None:
                if isinstance(message, dict) and isinstance(message.get("dialled"), list):
                    self.call_outcomes[client.hello.rank] = message["dialled"]
                return
            hello = parse_hello(message)
        except PermissionError:
            lacks = "lacks the job's secret" if self.secret.name else "has another token"
            self._turn_client_away(client, f"{client.where} {lacks}", "secret" if self.secret.name else "token")
            return
        except (ValueError, TypeError, RecursionError):
            self.drop_client(client, counted=True)
            return
        client.reply_salt = wire.make_reply_salt(client.salt, line)
        self._enter_hello(client, hello)

    def _decode_line(self, client: LineConnection, line: bytes) -> object:
        """Decode a line that proves the job's secret, or one without proof from another host of an open roll-call."""
        try:
            return wire.decode_message(line, self.secret.token if client.sealed else "", client.salt)
        except PermissionError:
            has_beacon = self.beacon is not None and endpoint.is_local_address(client.where)
            if client.hello is not None or not self.secret.is_open or has_beacon or client.where == LOCAL_PEER:
                raise
            client.sealed = False
            return wire.decode_message(line, "", client.salt)

    def _enter_hello(self, client: LineConnection, hello: Hello) -> None:
        if hello.run_id != self.rendezvous.run_id:
            run_name = endpoint.quote_peer(hello.run_id) or "(none)"
            self._turn_client_away(client, f"{hello.rank_label} of run {run_name}", "run")
            return
        if not client.sealed and job_secret.OPEN_NOTE not in self.register.remarks:
            self.register.remarks.append(job_secret.OPEN_NOTE)
        client.hello = hello
        self.admit_client(client)
        self.until = min(self.until, time.monotonic() + max(0.0, hello.left))
        self.register.add_hello(hello, time.time())
        if not endpoint.is_local_address(client.where):  # ranks of this host know it from the beacon
            self._send_sealed(client, {"host": self.own_hello.host, "pid": self.own_hello.pid})
        if self.answer is not None:
            self._send_sealed(client, self.answer)

    def _turn_client_away(self, client: LineConnection, message: str, why: str) -> None:
        """Reject a client of another job or without the token; note it once by its address."""
        self.turned_away.setdefault(f"{why} {client.where}", message)
        self.queue_bytes(client, wire.encode_message({"elsewhere": why}, "", ""))
        self.drop_client(client)

    def _build_greeting(self, client: LineConnection) -> dict[str, object]:
        """Say how to prove oneself, and no more. A process of this user, at the beacon, learns the rest."""
        found: dict[str, object] = {"salt": client.salt, "name": self.secret.name, "open": self.secret.is_open}
        if client.where != LOCAL_PEER:
            return found | ({"munge": self.secret.credential} if self.secret.credential else {})
        drawn = {"token": self.secret.token} if self.secret.name else {}
        return found | self.job_card | drawn | {"missing": self.register.missing_ranks()}

    def handle_disconnect(self, client: LineConnection) -> None:
        hello = client.hello
        if hello is not None and self.answer is None and self.register.present.get(hello.rank) is hello:
            self.register.mark_departed(hello, "its connection ended")
        self.drop_client(client, counted=hello is None and not client.greeted)

    def _send_sealed(self, client: LineConnection, data: dict[str, object]) -> None:
        token = self.secret.token if client.sealed else ""
        self.queue_bytes(client, wire.seal_line(self._serialize_once(data), token, client.reply_salt))

    def _serialize_once(self, data: dict[str, object]) -> str:
        """Serialize the answer to thousands of ranks only once."""
        if data is not self.answer:
            return wire.dump_compact_json(data)
        self.answer_json = self.answer_json or wire.dump_compact_json(data)
        return self.answer_json


def ensure_file_limit(world_size: int) -> RollcallFault | None:
    """Raise the limit of open files for a connection to every rank; return a fault if it is too low."""
    needed = world_size + 128
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= needed or soft == resource.RLIM_INFINITY:
        return None
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(needed, hard) if hard != -1 else needed, hard))
        if hard == -1 or hard >= needed:
            return None
    message = f"rank 0 (pid {os.getpid()}) may open {soft} files (at most {hard}), and {world_size} ranks need {needed}"
    return RollcallFault("SYS006", message, f"raise the limit: ulimit -n {needed}", (0,))
