"""Measure one machine: each named measure, twice or more, one sweep at a time.

    proof.py bench_machine --device cuda:0 '{"measures": ["matmul-bf16@cuda:0", "disk-read@cpu"], "quick": true, ...}'

Everything that needs torch shares one process, as importing it and opening a GPU takes longer than most measures. Results
are written at once: after a crash, another process measures the rest. The first sweep searches and measures, later ones
measure again: all other measures lie between two numbers of one, so that their spread shows how steady it is.
"""

import json
import os
import statistics
import time

import bench_eager
import bench_host
import bench_moves
import proof
from bench_matmul import MatmulBench, NotSupportedHere

QUICK_PACE = {"search": 0.4, "pass": 0.08, "warm": 0.01, "burst": 0.015, "bursts": 3, "held": 1.2}
FULL_PACE = {"search": 2.5, "pass": 0.3, "warm": 0.01, "burst": 0.02, "bursts": 5, "held": 1.2}
SUSTAINED_SUFFIX = "-held"


class MachineBench:
    """The measures to take, their pace, and the results."""

    def __init__(self, p):
        self.p = p
        self.options = json.loads(p.arguments[0])
        self.quick = bool(self.options.get("quick"))
        self.pace = QUICK_PACE if self.quick else FULL_PACE
        self.pace = dict(self.pace, **self.options.get("pace", {}))
        self.rows, self.store, self.eager = [], None, {}
        p.record["measures"] = self.rows

    def run_sweeps(self):
        """Take every measure once, then repeat all that worked."""
        ready = []
        for word in self.options["measures"]:
            row = self._begin_row(word)
            once = self._run_guarded(row, lambda row=row: self._measure_first(row))
            if once is not None:
                ready.append((row, once))
        for _ in range(int(self.options.get("repeat", 2)) - 1):
            for row, once in ready:
                if not row["verdict"]:
                    self.p.begin_step(f"{row['name']}@{row['device']} again")
                    self._run_guarded(row, lambda row=row, once=once: self._measure_again(row, once))
        for row, once in ready:
            row["verdict"] = row["verdict"] or "measured"
            getattr(once, "close", lambda: None)()
        self.p.write()

    def _begin_row(self, word):
        name, _, device = word.partition("@")
        row = {
            "name": name,
            "device": device,
            "verdict": "",
            "why": "",
            "at": "",
            "passes": [],
            "best": 0.0,
            "spans": [],
        }
        self.rows.append(row)
        self.p.begin_step(word)
        return row

    def _run_guarded(self, row, do):
        """Record a failing measure as a row, and go on."""
        began = time.time()
        try:
            return do()
        except (NotSupportedHere, proof.Unsupported) as cannot:
            row.update(verdict="unsupported", why=str(cannot))
        except proof.Absent as gone:
            row.update(verdict="absent", why=str(gone))
        except Exception as error:
            row.update(verdict="failed", why=proof.describe_error(error)[:300])
            if row["device"].startswith("cuda") and self._is_context_dead():
                raise SystemExit("the GPU answers no longer in this process") from None
        finally:
            row["spans"].append([began, time.time()])
        return None

    def _is_context_dead(self):
        """Whether an error has destroyed the CUDA context: then only another process can continue."""
        try:
            self.p._torch.cuda.synchronize()
        except Exception:
            return True
        return False

    def _measure_first(self, row):
        once, row["at"] = self._prepare_measure(row["name"], row["device"], row)
        self._measure_again(row, once)
        return once

    def _measure_again(self, row, once):
        middle, best = once(self.pace["pass"])
        slow = row["name"].startswith(("kernel", "eager"))
        row["passes"] += middle if isinstance(middle, list) else [middle]
        row["best"] = (min if slow and row["best"] else max)(row["best"], best)
        row["at"] = getattr(once, "at", "") or row["at"]
        self.p.write()

    # -- the measures -------------------------------------------------------------------------------------

    def _prepare_measure(self, name, device, row):
        """Return a call that takes the measure once, and a description."""
        if name.startswith(("disk", "shared")):
            return self._prepare_storage(name)
        torch = self._import_torch(device)
        place = torch.device(device)
        if name == "cpu-matmul":
            return self._prepare_matmul(torch, place, "fp32", row)
        if name.endswith(SUSTAINED_SUFFIX):
            return self._prepare_sustained(torch, place, name, row)
        if name.startswith("matmul-"):
            return self._prepare_matmul(torch, place, name.partition("-")[2], row)
        if name in ("memory-copy", "cpu-memory"):
            return bench_moves.memory_copy_measure(torch, place, self.quick)
        if name in bench_eager.EAGER_MEASURES:
            return self._prepare_eager(torch, place, name)
        if name in ("host-to-device", "device-to-host"):
            return bench_moves.transfer_measure(torch, place, self.quick, name == "host-to-device")
        ways = {
            "peer-to-peer": bench_moves.peer_copy_measure,
            "kernel-launch": bench_moves.kernel_launch_measure,
            "kernel-round-trip": bench_moves.round_trip_measure,
        }
        if name not in ways:
            raise NotSupportedHere(f"no measure is called {name}")
        return ways[name](torch, place, self.quick)

    def _prepare_storage(self, name):
        size = int(self.options.get("size", 0))
        if name == "shared-memory":
            return bench_host.shared_memory_measure(self.options.get("shm", "/dev/shm"), self.quick, size)
        folders = [folder for folder in self.options["folders"] if os.access(folder, os.W_OK)]
        if not folders:
            raise NotSupportedHere(f"{' and '.join(self.options['folders'])} cannot be written to")
        size = size or (128 if self.quick else 1024) * bench_host.MIB
        self.store = self.store or bench_host.BenchFile(folders[0], size)
        return bench_host.disk_measure(self.store, folders[0], name == "disk-read")

    def _prepare_eager(self, torch, place, name):
        if place not in self.eager:
            self.eager[place] = bench_eager.EagerBench(torch, place)
        return bench_eager.eager_measure(self.eager[place], name)

    def _prepare_matmul(self, torch, place, precision, row):
        multiply = MatmulBench(torch, place, precision)
        shape = self.options.get("shapes", {}).get(row["name"])
        shape, row["tried"] = (tuple(shape), 1) if shape else multiply.find_best_shape(self.pace["search"], self.quick)
        row["shape"] = list(shape)
        multiply.pool = None  # freed until the measure itself: six pools would not fit a small GPU
        at = " x ".join(str(side) for side in shape)

        def measure_bursts(seconds):
            multiply.pool, multiply.offset = multiply._fill_pool(), 0
            try:
                if not multiply.clock.cuda:
                    return multiply.measure_rate(shape, seconds, self.pace["warm"]) or _raise_memory_gone()
                # Short bursts with rests between: a long one would measure the power limit.
                turns = [
                    multiply.measure_rate(shape, self.pace["burst"]) or _raise_memory_gone()
                    for _ in range(self.pace["bursts"])
                ]
                return statistics.median([middle for middle, _ in turns]), max(best for _, best in turns)
            finally:
                multiply.pool = None

        return measure_bursts, at

    def _prepare_sustained(self, torch, place, name, row):
        """Run the shape found by the bursts without rests; search for one if there were none."""
        name = name[: -len(SUSTAINED_SUFFIX)]
        multiply = MatmulBench(torch, place, name.partition("-")[2])
        known = [r["shape"] for r in self.rows if r["name"] == name and r["device"] == row["device"] and "shape" in r]
        shape_option = self.options.get("shapes", {}).get(name)
        shape = shape_option or (known[0] if known else multiply.find_best_shape(self.pace["search"], self.quick)[0])
        multiply.pool = None

        def measure_sustained(seconds):
            multiply.pool, multiply.offset = multiply._fill_pool(), 0
            try:
                return multiply.sustained_rate(tuple(shape), self.pace["held"])
            finally:
                multiply.pool = None

        return measure_sustained, " x ".join(str(side) for side in shape)

    def _import_torch(self, device):
        """Import torch and check the device; a CPU never replaces a GPU."""
        torch = self.p.import_module("torch") if self.p._torch is None else self.p._torch
        self.p._torch = torch
        self.p.record["versions"]["torch"] = str(torch.__version__)
        self.p.record["versions"]["cuda"] = str(getattr(torch.version, "cuda", None) or "")
        if device.startswith("cuda"):
            self._select_gpu(torch, device)
        return torch

    def _select_gpu(self, torch, device):
        if not torch.cuda.is_available():
            raise proof.Absent(f"torch {torch.__version__} sees no GPU")
        index = int(device.partition(":")[2] or 0)
        if index >= torch.cuda.device_count():
            raise proof.Absent(f"torch sees {torch.cuda.device_count()} GPUs, and {device} was asked for")
        torch.cuda.set_device(index)
        about = torch.cuda.get_device_properties(index)
        self.p.record["hardware"][device] = about.name


def _raise_memory_gone():
    raise NotSupportedHere("the memory that was free is gone")


def run_proof(p):
    MachineBench(p).run_sweeps()
    p.record_number("measures", len(p.record["measures"]), "least", 1)
