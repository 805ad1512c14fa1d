"""Which driver runs which CUDA, against the rules as NVIDIA states them."""

from __future__ import annotations

import pytest
from tests.every import every

from gpuready.catalog import cuda

# NVIDIA's CUDA compatibility guide, minor-version compatibility: the driver that each major begins with.
# 11.0 came out before that promise, on a driver of its own.
FLOOR_OF_MAJOR = {11: (450, 80, 2), 12: (525, 60, 13), 13: (580, 65, 6)}
FLOOR_OF_11_0 = (450, 36, 6)

# The release notes of CUDA 13.1, table 3: the driver that came out with each release.
RELEASE_DRIVER = {
    "11.0": "450.51.05", "11.1": "455.23", "11.2": "460.27.03", "11.3": "465.19.01", "11.4": "470.42.01",
    "11.5": "495.29.05", "11.6": "510.39.01", "11.7": "515.43.04", "11.8": "520.61.05", "12.0": "525.60.13",
    "12.1": "530.30.02", "12.2": "535.54.03", "12.3": "545.23.06", "12.4": "550.54.14", "12.5": "555.42.02",
    "12.6": "560.28.03", "12.8": "570.26", "12.9": "575.51.03", "13.0": "580.65.06", "13.1": "590.44.01",
    "13.2": "595.45.04",
}  # fmt: skip

DRIVERS = [
    "418.226.00", "440.118.02", "450.36.05", "450.36.06", "450.51.05", "450.80.01", "450.80.02", "450.248.02",
    "455.45.01", "460.106.00", "465.31", "470.42.01", "470.256.02", "495.46", "510.108.03", "515.105.01",
    "520.61.05", "525.60.11", "525.60.13", "525.147.05", "530.30.02", "530.41.03", "535.54.03", "535.309.01",
    "545.29.06", "550.54.13", "550.54.14", "550.144.03", "555.58.02", "560.35.05", "565.57.01", "570.26",
    "570.211.01", "575.51.03", "575.64.05", "580.65.05", "580.65.06", "580.95.05", "580.159.04", "590.44.01",
    "590.48.01", "595.45.04", "595.71.05", "610.10.01", "615.30.02", "700.1",
]  # fmt: skip


def numbers(version: str) -> tuple[int, ...]:
    found = tuple(int(part) for part in version.split("."))
    return found + (0,) * (3 - len(found))


def nvidia_says_it_runs(driver: str, release: str) -> bool:
    """Backward: a newer driver runs everything older. Minor: within a major the first driver is enough."""
    floor = FLOOR_OF_11_0 if release == "11.0" else FLOOR_OF_MAJOR[numbers(release)[0]]
    return numbers(driver) >= floor


@every("driver", DRIVERS)
def test_every_driver_with_every_release(driver):
    for release in cuda.list_cuda_releases():
        assert cuda.driver_runs_cuda(driver, release) is nvidia_says_it_runs(driver, release), release


@every("driver", DRIVERS)
def test_the_newest_cuda_of_a_driver(driver):
    if numbers(driver) >= numbers("596.0"):
        return  # newer than the table
    whole = [release for release, full in RELEASE_DRIVER.items() if numbers(driver) >= numbers(full)]
    assert cuda.newest_cuda_for_driver(driver) == (whole[-1] if whole else None)


@pytest.mark.parametrize(("driver", "release"), [("610.10.01", "13.3"), ("615.30.02", "13.4"), ("700.1", "13.4")])
def test_the_newest_cuda_where_nvidia_names_a_branch_only(driver, release):
    assert cuda.newest_cuda_for_driver(driver) == release


@pytest.mark.parametrize("release", RELEASE_DRIVER)
def test_the_driver_of_a_release(release):
    driver, cite = cuda.release_driver(release)
    assert driver == RELEASE_DRIVER[release] and "release notes" in cite


@pytest.mark.parametrize(
    ("driver", "release", "runs"),
    [
        ("535", "12.8", True),  # minor-version compatibility
        ("535.54.03", "12.8", True),
        ("550", "13.0", False),
        ("580", "13.0", True),
        ("580.65.06", "13.4", True),
        ("615", "11.8", True),  # backward compatibility
        ("470", "12.1", False),
        ("470", "11.8", True),
        ("450.80.02", "11.8", True),
        ("450.51.05", "11.8", False),
        ("450.51.05", "11.0", True),
        ("525", "12.0", True),
        ("520.61.05", "12.0", False),
    ],
)
def test_known_truths(driver, release, runs):
    assert cuda.driver_runs_cuda(driver, release) is runs


def test_a_driver_never_loses_what_an_older_one_runs():
    ordered = sorted(DRIVERS, key=numbers)
    for release in cuda.list_cuda_releases():
        answers = [cuda.driver_runs_cuda(driver, release) for driver in ordered]
        assert answers == sorted(answers), release


def test_a_floor_and_its_source():
    assert cuda.minimum_driver("12.8") == (
        "525.60.13",
        "CUDA Toolkit 13.4 Update 1 release notes, sections 2.2 and 2.6",
    )
    assert cuda.minimum_driver("13.0")[0] == "580.65.06"
    assert cuda.minimum_driver("11.8")[0] == "450.80.02"
    assert cuda.minimum_driver("11.0")[0] == "450.36.06"


def test_a_release_is_found_by_its_updates():
    assert cuda.find_cuda_release("12.4.127") == cuda.find_cuda_release("12.4.1") == cuda.find_cuda_release("12.4")
    assert cuda.find_cuda_release("12.40") is None
    assert cuda.minimum_driver("12.4.127")[0] == "525.60.13"


def test_a_minor_that_the_catalogue_lacks_has_the_floor_of_its_major():
    assert cuda.find_cuda_release("13.9") is None
    assert cuda.minimum_driver("13.9")[0] == "580.65.06"
    assert cuda.minimum_driver("12.7")[0] == "525.60.13"
    assert cuda.driver_runs_cuda("570.26", "13.9") is False


def test_a_major_that_the_catalogue_lacks_is_unknown_and_not_false():
    assert cuda.minimum_driver("14.0") == (None, "")
    assert cuda.release_driver("14.0") == (None, "")
    assert cuda.driver_runs_cuda("700.1", "14.0") is None
    assert cuda.driver_runs_cuda("700.1", "10.2") is None
    assert cuda.list_nvcc_targets("14.0") is None and cuda.supported_gcc_range("14.0") is None
    assert cuda.compat_branches("14.0") is None


def test_what_is_no_version_is_refused():
    with pytest.raises(ValueError, match="not a version"):
        cuda.driver_runs_cuda("580.65.06", "twelve")


# -- forward compatibility ----------------------------------------------------------------------------


@pytest.mark.parametrize("driver", ["535.54.03", "550.144.03", "565.57.01", "570.211.01", "575.51.03", "550"])
def test_cuda_compat_lifts_the_listed_branches(driver):
    assert cuda.driver_runs_cuda(driver, "13.0") is False
    assert cuda.driver_runs_cuda(driver, "13.0", compat=True) is True


@pytest.mark.parametrize("driver", ["470.256.02", "525.147.05", "545.29.06", "555.58.02", "560.35.05"])
def test_cuda_compat_lifts_no_other_branch(driver):
    assert cuda.driver_runs_cuda(driver, "13.0", compat=True) is False


def test_cuda_compat_is_for_data_centre_gpus():
    assert cuda.driver_runs_cuda("550.144.03", "13.0", compat=True, datacentre=False) is False
    assert cuda.driver_runs_cuda("580.65.06", "13.0", compat=True, datacentre=False) is True


def test_cuda_compat_within_cuda_12():
    assert cuda.driver_runs_cuda("470.256.02", "12.8") is False
    assert cuda.driver_runs_cuda("470.256.02", "12.8", compat=True) is True
    assert cuda.driver_runs_cuda("450.248.02", "12.1", compat=True) is True
    assert cuda.driver_runs_cuda("450.248.02", "12.4", compat=True) is False


def test_the_compat_branches_of_a_release_may_be_unknown():
    assert cuda.compat_branches("13.0") == (535, 550, 565, 570, 575)
    assert cuda.compat_branches("13.1") is None


def test_compat_never_takes_anything_away():
    for release in cuda.list_cuda_releases():
        for driver in DRIVERS:
            assert cuda.driver_runs_cuda(driver, release, compat=True) >= cuda.driver_runs_cuda(driver, release)


# -- targets, compilers, branches ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("release", "capability", "can"),
    [
        ("11.0", "8.0", True),
        ("11.0", "8.6", False),
        ("11.1", "8.6", True),
        ("11.7", "8.9", False),
        ("11.8", "8.9", True),
        ("11.8", "9.0", True),
        ("12.6", "10.0", False),
        ("12.8", "10.0", True),
        ("12.8", "12.0", True),
        ("12.8", "12.1", False),
        ("12.9", "12.1", True),
        ("12.9", "7.0", True),
        ("13.0", "7.0", False),
        ("13.0", "7.5", True),
        ("13.0", "11.0", True),
    ],
)
def test_what_nvcc_can_build_for(release, capability, can):
    assert (capability in cuda.list_nvcc_targets(release)) is can


@pytest.mark.parametrize(("release", "newest"), [("11.4", 11), ("11.8", 11), ("12.1", 12), ("12.4", 13), ("13.0", 15)])
def test_the_newest_gcc(release, newest):
    oldest, found, cite = cuda.supported_gcc_range(release)
    assert found == newest and oldest <= 6 and cite


@pytest.mark.parametrize("capability", ["5.0", "5.2", "6.0", "6.1", "6.2", "7.0"])
def test_the_last_branch_of_old_gpus(capability):
    branch, cite = cuda.last_driver_branch(capability)
    assert branch == 580 and cite


@pytest.mark.parametrize("capability", ["7.5", "8.0", "8.9", "9.0", "10.0", "12.1"])
def test_newer_gpus_have_no_last_branch(capability):
    assert cuda.last_driver_branch(capability) == (None, "")


@pytest.mark.parametrize(
    ("capability", "branch"), [("10.0", 570), ("10.3", 570), ("12.0", 570), ("9.0", 520), ("7.0", 384)]
)
def test_the_first_branch(capability, branch):
    assert cuda.first_driver_branch(capability)[0] == branch


def test_drivers_are_in_order():
    found = cuda.list_release_drivers()
    assert [numbers(d) for d in found] == sorted(numbers(d) for d in found)
    assert "580.65.06" in found and found[-1] == "615"


def test_a_rule_can_be_read():
    assert cuda.find_cuda_rule("cudnn_volta")["last"] == "9.10.2"
    assert cuda.find_cuda_rule("open_kernel_modules")["open_from"] == "7.5"
