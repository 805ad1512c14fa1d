"""What a log is answered, as the tests of causes ask it."""

from functools import cache

from gpuready.model.diagnosis import Diagnosis
from gpuready.workflow.diagnose import diagnose_logs


@cache
def diagnose(text: str) -> Diagnosis:
    """Of this log alone, with nothing read of the machine; the same log is read once."""
    return diagnose_logs([[text.encode()]], look=False)
