"""Switches of the test run."""

import signal

from hypothesis import settings

from tests.further import FURTHER

# The same examples in every run: a test run that is red must be red for everybody. FUZZ=1 looks further.
settings.register_profile("same", derandomize=True, database=None)
settings.register_profile("further", max_examples=5000, deadline=None)
settings.load_profile("further" if FURTHER else "same")

# Under nohup a hang-up is ignored, in the background of a shell an interrupt, and every process that a test starts would inherit that.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption(
        "--update-samples", action="store_true", help="write the sample outputs of the docs anew"
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden screens anew")
