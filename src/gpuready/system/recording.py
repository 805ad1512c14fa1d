"""Record a machine's answers in a file, and replay them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gpuready.system.host_access import AccessError, HostAccess
from gpuready.system.redaction.text import redact_json


def query_key(verb: str, *args: Any) -> str:
    """Key of a query in the recording: JSON of the verb and its arguments, secrets redacted.

    Deadlines and output limits are left out: they are not part of the query.
    """
    import json

    if verb == "run":
        argv, env = args[0], args[3] if len(args) > 3 else None
        args = (argv, env) if env else (argv,)
    if verb == "nvml":
        args = ()
    return json.dumps(redact_json([verb, *args]), sort_keys=True)


class RecordingHost(HostAccess):
    """Asks another host, and keeps every answer in `recording` with its secrets redacted.

    It returns what it records: a probe sees the same answers as on replay. Of the environment it keeps only the
    variables that `keeps_variable` accepts: what nothing asks for may be a secret without a form.
    """

    def __init__(self, host: HostAccess, keeps_variable: Callable[[str], bool] | None = None):
        self.host, self.keeps_variable = host, keeps_variable
        self.recording: dict[str, Any] = {}

    @property
    def is_live(self) -> bool:  # type: ignore[override]
        return self.host.is_live

    @property
    def may_start_python(self) -> bool:  # type: ignore[override]
        return self.host.may_start_python

    def answer_query(self, verb: str, *args: Any) -> Any:
        key = query_key(verb, *args)
        try:
            answer = redact_json(self.host.answer_query(verb, *args))
        except AccessError as error:
            self.recording[key] = {"access_error": str(redact_json(str(error)))}
            raise AccessError(self.recording[key]["access_error"]) from None
        if verb == "environ" and self.keeps_variable is not None:
            answer = {name: value for name, value in answer.items() if self.keeps_variable(name)}
        self.recording[key] = answer
        return answer

    def branch_recording(self) -> RecordingHost:
        """A recorder of the same host with its own recording, for a probe that runs separately."""
        return RecordingHost(self.host, self.keeps_variable)

    def take_recording(self) -> dict[str, Any]:
        """What was recorded since the last call."""
        recording, self.recording = self.recording, {}
        return recording

    def record_failure(self, probe: str, reason: str, parts: int = 0) -> None:
        """Record that a probe failed, and after how many parts, so that the replay fails the same way."""
        self.recording[query_key("look", probe)] = {"access_error": reason, "parts": parts}


class ReplayHost(HostAccess):
    """Answers from a recording; a query that is not in it raises AccessError."""

    def __init__(self, recording: Mapping[str, Any]):
        self.recording = recording

    def answer_query(self, verb: str, *args: Any) -> Any:
        key = query_key(verb, *args)
        if key not in self.recording:
            raise AccessError("not recorded")
        answer = self.recording[key]
        if isinstance(answer, dict) and len(answer) == 1 and "access_error" in answer:
            raise AccessError(str(answer["access_error"]))
        return answer

    def recorded_failure(self, probe: str) -> tuple[str, int]:
        """Why a probe failed when recorded (empty when it did not), and the parts it gave before."""
        entry = self.recording.get(query_key("look", probe))
        if not isinstance(entry, dict):
            return "", 0
        parts = entry.get("parts")
        return str(entry.get("access_error", "")), parts if isinstance(parts, int) else 0
