"""Settings of the test run: hypothesis profiles, signals, options."""

import gc
import signal

from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers

from tests.sampling import FUZZ

# The same examples in every run: a test run that is red must be red for everybody. FUZZ=1 tests more.
# No deadline of the clock: machines differ in speed.
CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", max_examples=15, derandomize=True, database=None, **CALM)
settings.register_profile("further", max_examples=5000, **CALM)
settings.load_profile("further" if FUZZ else "same")
if not FUZZ:  # else it parses all of our modules, in each part, and draws other examples where other modules are loaded
    providers.is_local_module_file = lambda path: False

# Under nohup a hang-up is ignored, in the background of a shell an interrupt, and every process that a test starts would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


gc.disable()  # while modules are imported and tests are collected, which all stay


def pytest_collection_finish():
    """Modules, tables and tests stay to the end: not to be looked through again and again, nor copied into each fork."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)


def pytest_sessionfinish():
    """Nor is all that the tests left looked through five times more, as pytest does for exceptions in destructors."""
    gc.freeze()


def pytest_addoption(parser):
    parser.addoption("--update-samples", action="store_true", help="write the sample outputs of the docs anew")
    parser.addoption("--update-golden", action="store_true", help="write the golden screens anew")
