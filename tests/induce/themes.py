"""The cases by theme; each theme is one file of the corpus."""

from __future__ import annotations

from tests.induce.building import BUILDING
from tests.induce.everywhere import EVERYWHERE
from tests.induce.frameworks import FRAMEWORKS
from tests.induce.launching import LAUNCHING
from tests.induce.packages import ABI, VERSIONS
from tests.induce.stage import Provoke
from tests.induce.storage import STORAGE
from tests.induce.torchrun import RANKS
from tests.induce.training import TRAINING

THEMES: dict[str, tuple[Provoke, ...]] = {
    "everywhere": EVERYWHERE,
    "torchrun": RANKS,
    "launching": LAUNCHING,
    "abi": ABI,
    "versions": VERSIONS,
    "building": BUILDING,
    "storage": STORAGE,
    "training": TRAINING,
    "frameworks": FRAMEWORKS,
}
