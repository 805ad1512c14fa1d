"""A line without its wrapping: who said it, on which machine, how loudly, and the words."""

from __future__ import annotations

from gpuready.logs.log_lines import decode_line, parse_line, visible_lines
from gpuready.logs.log_prefixes import induce_prefix, parse_lines
from tests.every import every

SAID = [
    ("[rank11]: torch.OutOfMemoryError: CUDA", {"rank": 11}, "torch.OutOfMemoryError: CUDA"),
    ("[rank1]:[W516 14:34:56.853490829 socket.cpp:464] [c10d] timed out", {"rank": 1, "level": "W"}, "[c10d] timed out"),
    ("[default3]:terminate called", {"rank": 3}, "terminate called"),
    ("0000-steps/0 [default6]:[rank6]: RuntimeError: x", {"rank": 6}, "RuntimeError: x"),
    ("[gpu187:0]:  File \"x\"", {"rank": 0, "host": "gpu187"}, "  File \"x\""),
    ("[1,3]<stderr>: boom", {"rank": 3}, "boom"),
    ("(EngineCore_DP0 pid=17374) ERROR 09-28 15:47:24 [core.py:718] ValueError: Free", {"pid": 17374, "role": "EngineCore_DP0", "level": "E"}, "ValueError: Free"),
    ("(VllmWorker rank=1 pid=7) INFO 01-02 03:04:05 [x.py:1] ok", {"rank": 1, "pid": 7, "level": "I"}, "ok"),
    ("(Worker_TP2 pid=9) hello", {"rank": 2, "pid": 9}, "hello"),
    ("(TrainWorker pid=12, ip=10.0.0.3) hello", {"pid": 12, "host": "10.0.0.3"}, "hello"),
    ("(raylet) A worker died", {"role": "raylet", "place": "launcher"}, "A worker died"),
    ("(RayTrainWorker pid=3) boom [repeated 7x across cluster]", {"pid": 3}, "boom"),
    ("ERROR 06-28 06:11:45 worker_base.py:145] Traceback", {"level": "E"}, "Traceback"),
    ("W0104 13:46:27.896000 80302 torch/distributed/run.py:792] note", {"level": "W"}, "note"),
    ("[E108 20:04:34.467642512 socket.cpp:957] [c10d] The client", {"level": "E"}, "[c10d] The client"),
    ("[E ProcessGroupNCCL.cpp:523] [Rank 1] Watchdog caught", {"rank": 1, "level": "E"}, "Watchdog caught"),
    ("[rank3]:[E1115 01:02:03.4 ProcessGroupNCCL.cpp:616] [PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog", {"rank": 3}, "[PG ID 0 PG GUID 0(default_pg) Rank 3] Watchdog"),
    ("2024-06-28T06:11:52.685Z (LLMRayActor pid=20770) INFO 06-28 06:11:45 x.py:45] # GPU", {"pid": 20770}, "# GPU"),
    ("2025-10-23 12:21:19,315 - my.mod - INFO - Loading", {"level": "I"}, "Loading"),
    ("[2023-04-13 08:39:16,676] [INFO] [launch.py:428:sigkill_handler] Killing subprocess 9", {"level": "I", "place": "launcher"}, "Killing subprocess 9"),
    ("ERROR:torch.distributed.elastic.api:failed", {"level": "E"}, "failed"),
    ("[74889.644138] NVRM: Xid (PCI:0000:02:00): 79", {"place": "kernel"}, "NVRM: Xid (PCI:0000:02:00): 79"),
    ("Nov 15 16:00:01 node7 kernel: Out of memory: Killed process 3", {"host": "node7", "place": "kernel"}, "Out of memory: Killed process 3"),
    ("[pod/trainer-0/main] boom", {"host": "trainer-0"}, "boom"),
    ("E       RuntimeError: x", {}, "RuntimeError: x"),
    ("2025-01-01T10:00:00.1Z stderr F boom", {}, "boom"),
    ("worker-0  | boom", {"host": "worker-0"}, "boom"),
    ("ERROR:    boom", {"level": "E"}, "boom"),
    ("2025-01-01 10:00:00.123 | ERROR    | app.main:run:42 - boom", {"level": "E"}, "boom"),
    ("[trainer2|0]:boom", {"rank": 2}, "boom"),
    ("[stderr] boom", {}, "boom"),
    ("> boom", {}, "boom"),
    ("│ boom              │", {}, "boom"),
    ("[INFO|trainer.py:12] 2025-01-01 10:00:00,123 >> boom", {"level": "I"}, "boom"),
    ("(head, rank=0, pid=8292) [rank5]:W0215 12:25:06.525000 14707 torch/x.py:504] [12/0_1] boom", {"rank": 5, "level": "W"}, "boom"),
    ("[3] include/shm.h:28 NCCL WARN boom", {"gpu": 3, "place": "nccl"}, "[3] include/shm.h:28 NCCL WARN boom"),
]  # fmt: skip


@every(("text", "reported", "words"), SAID, ids=[text[:40] for text, _, _ in SAID])
def test_prefixes(text, reported, words):
    line = parse_line(text)
    assert {key: getattr(line, key) for key in reported} == reported
    assert line.text == words


def test_nccl_names_host_process_and_gpu():
    line = parse_line("ubuntu:9621:9688 [3] misc/shmutils.cc:112 NCCL WARN Error while creating")
    assert (line.host, line.pid, line.gpu, line.place, line.level) == ("ubuntu", 9621, 3, "nccl", "W")


def test_a_rank_speaks_behind_a_progress_bar():
    text = "Map:  92%|####| 32/35 [29:58<12:05, 41 examples/s][rank1]: Traceback (most recent call last):"
    line = parse_line(text)
    assert line.rank == 1 and line.text.startswith("Traceback")
    bar, behind = visible_lines(text)
    assert bar.startswith("Map:") and behind.startswith("[rank1]: Traceback")
    assert visible_lines("50%|## | 5/9 [00:05<00:02, 2it/s]Killed")[-1] == "Killed"


def test_plain_text_is_left_alone():
    for text in ("ValueError: x", "    return f(x)", "[a list] of things", "(a note) here", "step 3: loss 2.1", ""):
        assert parse_line(text).text == text.rstrip()


def test_what_a_terminal_shows():
    assert visible_lines("\x1b[31mred\x1b[0m \x1b]0;title\x07text\x1b[2K") == ["red text"]
    assert visible_lines("abcd\x08\x08xy") == ["abxy"]
    assert visible_lines("  1%|#  | 1/9 [00:01<00:02]\r 50%|## | 5/9 [00:05<00:02]\rdone") == ["done"]
    assert visible_lines("10%|# | 1/9 [00:01<00:02]\rTraceback (most recent call last):\r") == [
        "Traceback (most recent call last):"
    ]
    assert visible_lines("a\0b\x7fc") == ["abc"]


def test_what_was_written_over_itself_a_thousand_times_is_bounded():
    assert len(visible_lines("a\r" * 4000)) <= 8


def test_any_encoding():
    assert decode_line("grün".encode()) == "grün"
    assert decode_line(b"gr\xfcn") == "gr\ufffdn"


def test_srun_labels_every_line_with_its_task():
    rows = [(i + 1, f"{i % 4}: step {i}".encode()) for i in range(20)]
    assert [line.rank for line in parse_lines(rows)][:5] == [0, 1, 2, 3, 0]
    assert next(iter(parse_lines(rows))).text == "step 0" and next(iter(parse_lines(rows))).raw == "0: step 0"


def test_pdsh_labels_every_line_with_its_node():
    rows = [(i + 1, f"worker-{i % 2}: step {i}".encode()) for i in range(20)]
    assert {line.host for line in parse_lines(rows)} == {"worker-0", "worker-1"}


def test_levels_are_no_nodes():
    assert induce_prefix(["ERROR: a b", "ERROR: c d", "WARNING: e", "INFO: f g", "ERROR: h"]) is None


def test_a_line_of_rays_own_processes():
    line = parse_line("[2024-08-04 18:18:01,609 E 4010 4012] core_worker.cc:234: Failed to register worker")
    assert (line.level, line.pid, line.text) == ("E", 4010, "core_worker.cc:234: Failed to register worker")
    assert parse_line("2024-08-04 18:17:57,324\tWARNING utils.py:1597 -- Version mismatch").level == "W"
