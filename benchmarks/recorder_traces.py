"""Which ranks does ``gpuready diagnose`` blame for a standstill? Folders of flight-recorder dumps with their truth.

Made for the traces of NVIDIA's nvidia-resiliency-ext (tests/attribution/unit/fr_traces): each folder has a dump for each rank and a
fault_injection.log whose first line names the ranks that were hurt.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from gpuready.logs import flight_recorder, log_paths  # noqa: E402


def judged(folder: Path) -> tuple[set[int], set[int]]:
    """The ranks that were hurt, and those that are blamed."""
    truth = (folder / "fault_injection.log").read_text().splitlines()[0].partition("[")[2].rstrip("]")
    hurt = {int(rank) for rank in truth.split(",")}
    dumps = [
        flight_recorder.parse_recorder_dump(path.read_bytes(), log_paths.rank_from_path(path.name))
        for path in sorted(folder.iterdir())
        if flight_recorder.is_recorder_dump(path.read_bytes()[:4096])
    ]
    return hurt, {one.rank for one in flight_recorder.find_standstills(dumps)}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", help="the folder of the traces")
    parser.add_argument("-o", help="write the result as JSON")
    args = parser.parse_args()
    rows, right, wrong, total = {}, 0, 0, 0
    for place in sorted(path.parent for path in Path(args.folder).rglob("fault_injection.log")):
        hurt, blamed = judged(place)
        rows[place.name] = {"hurt": sorted(hurt), "blamed": sorted(blamed)}
        right, wrong, total = right + len(hurt & blamed), wrong + len(blamed - hurt), total + len(hurt)
        print(f"{place.name:20} hurt {sorted(hurt)}  blamed {sorted(blamed)}")
    result = {"traces": rows, "found": f"{right} of {total}", "false": wrong}
    print(f"found {right} of {total}, false {wrong}")
    if args.o:
        Path(args.o).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
