"""An environment for traces where none is at hand: CPU builds of torch and transformers, installed in the user's cache."""

from collections.abc import Callable

from gpuready import system
from gpuready.system.own_folders import make_cache_folder
from gpuready.system.process.runner import unredacted_variables
from gpuready.workflow.refusal import Refused

FRAMEWORK, WANTS = "trl", "cpu,lora"  # by its contract: torch, transformers, accelerate and peft
QUESTION = """\
this model is traced, and no environment with torch and transformers is at hand. One for traces can be made in
  {home}
(CPU builds, about 1 GB; delete the folder to undo it)
"""


def provide_trace_python(agree: Callable[[str], bool], show_progress: Callable[..., None]) -> tuple[str, str]:
    """Return the Python of our environment for traces, and what to say of it; no Python where it may not be made.

    It is installed as ``gpuready install`` does: atomically, by hashes, with its journal.
    """
    host = system.LiveHost()
    try:
        home = f"{make_cache_folder(unredacted_variables(host))}/trace"
    except system.AccessError as error:
        return "", f"no environment for the trace can be made: {error}"
    python = f"{home}/bin/python"
    if host.stat_path(python) is None:
        if not agree(QUESTION.format(home=home)):
            return "", f"`gpuready install {FRAMEWORK} --wants {WANTS} -e {home}` makes an environment for the trace"
        from gpuready.workflow.install import InstallOrder

        done = InstallOrder(FRAMEWORK, home, wants=WANTS, show_step=show_progress).run_install()
        if done.verdict not in ("installed", "unchanged"):
            raise Refused(f"the environment for the trace could not be made: {done.says}")
    return python, f"traced in {home}, which gpuready made for this: delete it to undo that"
