"""Switches of the test run."""


def pytest_addoption(parser):
    parser.addoption(
        "--update-samples", action="store_true", help="write the sample outputs of the docs anew"
    )
    parser.addoption("--update-golden", action="store_true", help="write the golden screens anew")
