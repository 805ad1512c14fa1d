"""A machine in a file: a door that remembers every answer, and one that plays them back."""

from __future__ import annotations

from gpuready.system.door import Blind, Door
from gpuready.system.redact import redact_all

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def key(verb: str, *args: Any) -> str:
    """The name of a question on the tape: JSON of the verb and its arguments, secrets redacted.

    How long a program may take and how much it may say are left out: they are no part of the question.
    """
    import json

    if verb == "run":
        argv, env = args[0], args[3] if len(args) > 3 else None
        args = (argv, env) if env else (argv,)
    if verb == "nvml":
        args = ()
    return json.dumps(redact_all([verb, *args]), sort_keys=True)


class Recorder(Door):
    """Asks another door, and keeps every answer on `tape` with its secrets redacted.

    What it hands on is what it keeps: a look sees here what it will see when the tape is played.
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
        """A recorder of the same door with a tape of its own, for a look that runs apart."""
        return Recorder(self.door)

    def cut(self) -> dict[str, Any]:
        """What was recorded since the last cut."""
        tape, self.tape = self.tape, {}
        return tape

    def fail(self, look: str, why: str, parts: int = 0) -> None:
        """Keep that a look failed, and after how many of its parts, so that the tape fails the same way."""
        self.tape[key("look", look)] = {"blind": why, "parts": parts}


class Replay(Door):
    """Plays a tape; a question that is not on it cannot be seen."""

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
        """Why a look failed when it was recorded, empty when it did not, and the parts that it gave before."""
        entry = self.tape.get(key("look", look))
        if not isinstance(entry, dict):
            return "", 0
        parts = entry.get("parts")
        return str(entry.get("blind", "")), parts if isinstance(parts, int) else 0
