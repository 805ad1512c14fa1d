"""Flight recorders' dumps are gathered beside the logs, also those of other nodes; and the record of a run."""

from __future__ import annotations

import json

from gpuready.launcher import engines, flight_dumps
from gpuready.model.run import LaunchJob
from gpuready.workflow import run_record

DUMP = """
import os
path = os.environ["TORCH_FR_DUMP_TEMP_FILE"] + os.environ["RANK"]
if os.environ["RANK"] == "1":
    open(path, "wb").write(b"recorded")
    raise ValueError("bad data")
import time
time.sleep(60)
"""


def test_the_dump_and_the_record_of_a_run(stage):
    stage.script(DUMP)
    done = stage.run("--nproc", "2", "--", "train.py")
    logs = stage.folder / "logs"
    assert done.code == 1 and (logs / "flight-recorder" / "rank_1").read_bytes() == b"recorded"
    record = json.loads((logs / "run.json").read_text())
    assert record["attempts"][0]["first"] == [1] and record["verdict"] == "failed" and record["started"].endswith("Z")
    said = run_record.describe_file(str(logs / "run.json"))
    assert said.startswith("gpuready run recorded: rank 1 on here failed first (exit 1 after")
    (logs / "other.json").write_text("[1]")
    assert run_record.describe_file(str(logs / "other.json")) == ""


def test_a_good_run_leaves_no_empty_folder(stage):
    stage.script("pass\n")
    assert stage.run("--nproc", "1", "--", "train.py").code == 0
    assert not (stage.folder / "logs" / "flight-recorder").exists()


def test_a_dump_of_another_node_is_kept_and_one_that_is_here_stays(tmp_path):
    path = tmp_path / "rank_3"
    path.write_bytes(b"from there")
    text = flight_dumps.read_dump({flight_dumps.PLACES[1]: str(tmp_path / "rank_")}, 3)
    flight_dumps.keep_dump(str(tmp_path / "logs"), 3, text)
    flight_dumps.keep_dump(str(tmp_path / "logs"), 3, "b3RoZXI=")
    flight_dumps.keep_dump(str(tmp_path / "logs"), 4, "no base64!")
    assert (tmp_path / "logs" / flight_dumps.FOLDER / "rank_3").read_bytes() == b"from there"


def test_what_the_user_has_set_stays():
    job = LaunchJob("local", "/v/bin/python", "script", ("t.py",), 2, logs="/l")
    ours = {v.name for v in engines.common_variables(job, {})}
    theirs = {v.name for v in engines.common_variables(job, {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/x"})}
    assert "TORCH_FR_DUMP_TEMP_FILE" in ours and not any(name.startswith("TORCH_FR") for name in theirs)
    assert not any(name.startswith("TORCH_NCCL_TRACE") for name in ours)
