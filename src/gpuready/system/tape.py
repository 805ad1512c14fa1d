"""Record a machine's answers in a file, and replay them."""

from __future__ import annotations

from gpuready.system.door import Blind, Door
from gpuready.system.redact import redact_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def key(verb: str, *args: Any) -> str:
    """Key of a query in the recording: JSON of the verb and its arguments, secrets redacted.

    Deadlines and output limits are left out: they are not part of the query.
    """
    import json

    if verb == "run":
        argv, env = args[0], args[3] if len(args) > 3 else None
        args = (argv, env) if env else (argv,)
    if verb == "nvml":
        args = ()
    return json.dumps(redact_all([verb, *args]), sort_keys=True)


class Recorder(Door):
    """Asks another host, and keeps every answer in `recording` with its secrets redacted.

    It returns what it records: a probe sees the same answers as on replay.
    """

    def __init__(self, door: Door):
        self.door = door
        self.tape: dict[str, Any] = {}

    @property
    def live(self) -> bool:  # type: ignore[override]
        return self.door.live

    def ask(self, verb: str, *args: Any) -> Any:
        at = key(verb, *args)
        try:
            answer = redact_all(self.door.ask(verb, *args))
        except Blind as why:
            self.tape[at] = {"blind": str(redact_all(str(why)))}
            raise Blind(self.tape[at]["blind"]) from None
        self.tape[at] = answer
        return answer

    def branch(self) -> Recorder:
        """A recorder of the same host with its own recording, for a probe that runs separately."""
        return Recorder(self.door)

    def cut(self) -> dict[str, Any]:
        """What was recorded since the last call."""
        tape, self.tape = self.tape, {}
        return tape

    def fail(self, look: str, why: str, parts: int = 0) -> None:
        """Record that a probe failed, and after how many parts, so that the replay fails the same way."""
        self.tape[key("look", look)] = {"blind": why, "parts": parts}


class Replay(Door):
    """Answers from a recording; a query that is not in it raises AccessError."""

    def __init__(self, tape: Mapping[str, Any]):
        self.tape = tape

    def ask(self, verb: str, *args: Any) -> Any:
        at = key(verb, *args)
        if at not in self.tape:
            raise Blind("not recorded")
        answer = self.tape[at]
        if isinstance(answer, dict) and len(answer) == 1 and "blind" in answer:
            raise Blind(str(answer["blind"]))
        return answer

    def fate(self, look: str) -> tuple[str, int]:
        """Why a probe failed when recorded (empty when it did not), and the parts it gave before."""
        entry = self.tape.get(key("look", look))
        if not isinstance(entry, dict):
            return "", 0
        parts = entry.get("parts")
        return str(entry.get("blind", "")), parts if isinstance(parts, int) else 0
