"""``gpuready fit train.py``: scripts run in a real torch, with every tensor of their GPU on the meta device."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gpuready.catalog.gpus import find_gpu
from gpuready.commands.fit import fit
from gpuready.fit import H200, FitJob
from gpuready.fit.search.script_prediction import (
    ScriptTape,
    describe_growth,
    predict_script,
    predict_script_time,
    tape_from_script,
    validate_recording,
)
from gpuready.fit.time.device_speed import DeviceSpeed, speed_from_row
from gpuready.launcher.launch_words import Launch, parse_launch
from gpuready.system.file_journal import restore_files
from tests import target_environment
from tests.deadlines import wait_until
from tests.fit.torch_forks import SCRIPTS, run_in_torch
from tests.running import gpuready

LOOP = """\
import torch
from torch import nn
model = nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Linear(4096, 1024)).cuda()
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1000):
    x = torch.randn(512, 1024).cuda()
    loss = (model(x) - x).square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
    if not torch.isfinite(loss) or loss.item() > 1e6:
        raise SystemExit("diverged")
"""
WEIGHTS = 2 * 1024 * 4096 + 4096 + 1024
CASES = {
    "loop": LOOP,
    "device": LOOP.replace("for step", 'assert model[0].weight.device == torch.device("cuda:0") and model[0].weight.is_cuda\nfor step').replace(
        "torch.randn(512, 1024).cuda()", 'torch.randn(512, 1024, device=torch.device("cuda"))'
    ).replace("1024)).cuda()", '1024)).to(device=torch.device("cuda:0")).to(device=0)'),
    "host": """\
import torch, sys
assert sys.argv[1:] == ["--lr", "1"] and __name__ == "__main__"
assert torch.cuda.get_device_name() == "NVIDIA H100 80GB HBM3" and torch.cuda.get_device_capability() == (9, 0)
assert torch.tensor([3, 1, 2], device="cuda").sort().values.tolist() == [1, 2, 3]
mask = torch.ones(4, 8).cuda().bool(); mask[2:] = False
assert torch.zeros(4, 8, device="cuda")[mask].shape == (16,) and mask.sum().item() == 16 and not mask.all()
assert torch.zeros(3).cuda().cpu().numpy().sum() == 0 and torch.zeros(1).device.type == "cpu"
w = torch.nn.Parameter(torch.randn(64, 64, device="cuda")); opt = torch.optim.SGD([w], lr=0.1)
before = torch.cuda.memory_allocated(); held = torch.empty(1 << 20, device="cuda"); assert torch.cuda.memory_allocated() - before == 4 << 20
for _ in range(3):
    w.sum().backward(); opt.step()
""",
    "scaler": """\
import torch
from torch import nn
model = nn.MultiheadAttention(64, 4, batch_first=True).cuda(); opt = torch.optim.Adam(model.parameters()); scaler = torch.amp.GradScaler("cuda")
for step in range(9):
    x = torch.randn(2, 16, 64).to("cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        y = model(x, x, x, need_weights=False)[0]
        assert y.dtype is torch.float16
    scaler.scale(y.float().sum()).backward(); scaler.unscale_(opt); nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt); scaler.update(); opt.zero_grad()
""",
    "lengths": LOOP.replace("512", "8 * (1 + step % 7)").replace("1000", "50").replace("4096", "64"),
    "ahead": """\
import torch
rows = [torch.zeros(4096 if n == 60 else 8 * (1 + n % 5), 512) for n in range(90)]
layer = torch.nn.Linear(512, 512).cuda(); opt = torch.optim.SGD(layer.parameters(), 0.1)
def early(loader):
    held = None
    for row in loader:
        if held is not None: yield held
        held = row
    yield held
for row in early(torch.utils.data.DataLoader(rows, batch_size=None)): layer(row.cuda()).sum().backward(); opt.step(); opt.zero_grad()
print(1 / 0)
""",
    "assumed": LOOP.replace("    if not", "    if x.abs().max() > loss:\n        break\n    if not"),
    "selected": LOOP.replace("    loss =", "    x = x[x.sum(1) > 0]\n    loss ="),
    "autocast": """\
import torch
layer = torch.nn.TransformerDecoder(torch.nn.TransformerDecoderLayer(512, 8, 1024), 1).cuda(); memory = torch.randn(49, 2, 512).cuda()
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    for length in range(1, 6): assert layer(memory[:length], memory).shape == (length, 2, 512)
""",
    "penalty": """\
import torch
net = torch.nn.Linear(2048, 2048).cuda(); opt = torch.optim.SGD(net.parameters(), 0.1)
for step in range(40):
    x = torch.randn(64, 2048, device="cuda", requires_grad=True); y = net(x).tanh(); loss = y.mean()
    if step == 16: loss = loss + torch.autograd.grad(y.sum(), x, create_graph=True)[0].square().mean()
    loss.backward(); opt.step(); opt.zero_grad()
""",
    "twice": """\
import torch
x = torch.randn(2, 4, 64, 32, device="cuda", dtype=torch.bfloat16, requires_grad=True)
y = torch.nn.functional.scaled_dot_product_attention(x, x, x)
torch.autograd.grad(y.sum(), x, create_graph=True)[0].sum().backward()
""",
    "compiled": LOOP.replace("opt =", "model = torch.compile(model)\nopt ="),
    "crash": "import torch\nx = torch.zeros(4, device='cuda')\ny = x.view(3)\n",
    "exits": "import sys\nsys.exit('no --data was given')\n",
    "ends": "import torch\nopt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(8).cuda())], 0.1)\nraise SystemExit(0)\n",
    "leaves": LOOP + "    import os; os._exit(0)\n",
    "asks": "name = input('run name? ')\n",
    "apart": 'import torch\ntorch.nn.Linear(8, 8, device="meta")(torch.zeros(2, 8, device="cuda"))\n',
    "experts": """\
import torch
weights = torch.randn(4, 16, 24, device="cuda", requires_grad=True); opt = torch.optim.SGD([weights], 0.1)
for step in range(2):
    ends = torch.tensor([8, 16, 24, 32], dtype=torch.int32).cuda()
    y = torch._grouped_mm(torch.zeros(32, 16, device="cuda"), weights, offs=ends); y[y < y[:, [-1]].detach()] = 0.0
    y.sum().backward(); opt.step()
""",
    "kinds": """\
import torch
from torch import nn
layer = nn.LSTM(16, 32, batch_first=True).cuda(); opt = torch.optim.SGD(layer.parameters(), 0.1)
for length in (8, 8, 12):
    x = torch.randn(4, length, 16); y = layer(x.cuda())[0]; assert not y.is_contiguous()
    heads = y.reshape(4, 2, length, 16).to(torch.bfloat16); seen = nn.functional.scaled_dot_product_attention(heads, heads, heads)
    wide = nn.functional.interpolate(seen.float(), scale_factor=2, mode="bicubic"); normed = nn.functional.group_norm(wide.reshape(1, 8, -1), 2)
    normed.sum().backward(); opt.step(); opt.zero_grad()
""",
    "packs": "import torch\ntorch.utils.dlpack.to_dlpack(torch.zeros(4).cuda())\n",
    "saves": """\
import copy, io, pickle, threading, torch
model = torch.nn.Linear(64, 64).cuda(); opt = torch.optim.AdamW(model.parameters()); mean = copy.deepcopy(model).cpu(); found = []
def write(): found.append(model.weight.detach().cpu().numpy().shape)
for step in range(3):
    model(torch.randn(8, 64, device="cuda")).sum().backward(); opt.step(); opt.zero_grad()
    if step: continue
    torch.save({"model": model.state_dict(), "opt": opt.state_dict(), "order": torch.arange(5)}, "kept.pt"); kept = torch.load("kept.pt", map_location="cpu")
    assert kept["model"]["weight"].shape == (64, 64) and kept["model"]["weight"].device.type == "cpu" and kept["order"].tolist() == [0, 1, 2, 3, 4]
    model.load_state_dict(kept["model"]); opt.load_state_dict(kept["opt"]); whole = pickle.loads(pickle.dumps(model)); assert whole.weight.is_cuda
    buffer = io.BytesIO(); torch.save(model, buffer); buffer.seek(0); assert torch.load(buffer, weights_only=False).weight.requires_grad
    with torch.no_grad(): [a.mul_(0.9).add_(b.cpu(), alpha=0.1) for a, b in zip(mean.parameters(), model.parameters())]
    thread = threading.Thread(target=write); thread.start(); thread.join(); assert found == [(64, 64)]
    print(model.weight, torch.tensor([model.weight[0, 0], model.bias[0]]), torch.tensor(model.weight).device)
    assert model.weight.data_ptr() not in (0, model.bias.data_ptr()) and model.weight.untyped_storage().data_ptr() == model.weight.data_ptr()
""",
    "files": """\
import os, shutil, tempfile, torch
os.makedirs("out/logs"); open("out/logs/a.txt", "w").write("new"); open("mine.txt", "w").write("changed"); os.remove("other.txt"); torch.save({}, "out/x.pt")
os.system("echo by a library > out/logs/b.txt"); shutil.rmtree(tempfile.mkdtemp()); os.rename("data", "out/data"); fd = os.open("mine.txt", os.O_RDWR); os.truncate(fd, 7); os.close(fd)
torch.backends.cudnn.benchmark = True; torch.nn.functional.conv2d(torch.zeros(1, 3, 8, 8).cuda(), torch.zeros(2, 3, 3, 3).cuda())
w = torch.nn.Parameter(torch.zeros(8).cuda()); opt = torch.optim.SGD([w], 0.1)
for _ in range(4): w.sum().backward(); opt.step()
""",
    "ranks_of_4": LOOP.replace(
        "opt =", 'torch.distributed.init_process_group("nccl"); model = nn.parallel.DistributedDataParallel(model, device_ids=[0])\nassert torch.distributed.get_world_size() == 4\nopt ='
    ),
}  # fmt: skip


CASES["looks"] = (
    CASES["ahead"]
    .replace(
        "layer =",
        """
class Rows(list):
    def __getitem__(self, n):
        if n == 20: __import__("watch").LONGEST_LOOK = 0.0
        return super().__getitem__(n)
rows = Rows(rows); layer =""",
        1,
    )
    .replace("early(torch", "iter(torch")
)


@pytest.fixture(scope="module")
def watched(tmp_path_factory) -> dict[str, dict]:
    folder = tmp_path_factory.mktemp("scripts")
    for name, text in CASES.items():
        (folder / f"{name}.py").write_text(text)
    (folder / "mine.txt").write_text("mine"), (folder / "other.txt").write_text("other")
    (folder / "data").mkdir(), (folder / "data" / "rows.txt").write_text("rows")
    _, said = run_in_torch(folder, Path(__file__).with_name("play_scripts.py"), str(folder))
    found = {name: json.loads((folder / f"{name}.py.json").read_text()) for name in CASES}
    return found | {"folder": folder, "said": said}


def predict(reply: dict):
    tape = tape_from_script(validate_recording(reply), H200)
    return tape, *predict_script(FitJob({}), H200, tape)


def test_a_loop_is_watched_longer_than_its_steps_differ(watched):
    reply = watched["loop"]
    assert (reply["error"], reply["steps"]) == ("", 34)
    _, fit, by_line = predict(reply)
    assert fit.parts["parameters"] == pytest.approx(4 * WEIGHTS, rel=0.001)
    assert fit.parts["optimizer"] == pytest.approx(8 * WEIGHTS, rel=0.001)
    assert fit.parts["gradients"] + fit.parts["activations"] > 4 * WEIGHTS
    assert fit.parts["workspaces"] == 2 * (32 << 20) + (1 << 20)
    lines = {reply["places"][line][1]: size for line, size in by_line.items() if line >= 0}
    assert lines[3] == pytest.approx(4 * WEIGHTS, rel=0.001), "the line that moves the model holds its weights"
    assert reply["places"][max(by_line)][2].startswith(("model", "opt", "loss", "x ="))


def test_with_several_optimizers_a_step_is_a_round(watched):
    tape, *_ = predict(watched["loop"])
    tape.kernels = [kernel for kernel in tape.kernels if kernel[0] != "host"]  # its own work, timed on this machine
    one = predict_script_time(tape, SPEED)
    two = predict_script_time(tape, SPEED, optimizers=[number % 2 for number in range(34)])
    assert two.range[1] == pytest.approx(2 * one.range[1], rel=0.15) and not one.notes
    assert two.notes == ("a step is a round of the script's 2 optimizers",)
    often = predict_script_time(tape, SPEED, optimizers=[int(number % 5 == 4) for number in range(34)])
    assert often.range[1] == pytest.approx(5 * one.range[1], rel=0.15), (
        "a round ends with the one that steps least often"
    )


SPEED = DeviceSpeed("H200", 132, 800e12, 700e12, 50e12, 4e12, 400e9)


def test_a_step_that_waits_for_the_host_has_a_range_and_no_point(watched):
    tape, _, _ = predict(watched["device"])
    slow = predict_script_time(tape, SPEED)
    tape.kernels = [kernel for kernel in tape.kernels if kernel[0] != "host"]  # its own work, timed on this machine
    fast = predict_script_time(tape, SPEED.replace(pace=SPEED.pace.scale(0.001)))
    assert slow.step_seconds is None and slow.bound_by in ("launches", "host")  # the host's own work is measured here
    assert slow.range[0] < 0.6 * slow.range[1] / 1.3
    assert fast.range[0] < fast.step_seconds < fast.range[1] < slow.range[1]
    assert predict_script_time(predict(watched["loop"])[0], SPEED).bound_by == "host", "it makes its rows there"


def test_a_device_is_asked_for_in_any_way(watched):
    def births(name: str) -> list[int]:
        return [event for event in watched[name]["events"] if isinstance(event, int) and event >= 0]

    made = births("device")
    assert made == births("loop")[: len(made)] and len(made) > 30


@pytest.mark.parametrize("name", ["host", "scaler", "files", "ranks_of_4", "experts", "kinds"])
def test_a_script_sees_a_gpu(watched, name):
    assert watched[name]["error"] == "" and watched[name]["steps"] >= 2, watched[name]["traceback"]


def test_experts_in_fp32_are_multiplied_one_by_one(watched):
    products = [row for row in watched["experts"]["kernels"] if row[0] == "matmul"]
    assert products[:4] == [["matmul", 8, 24, 16, 4, 1, 16]] * 4, "nothing of tensor cores"


def test_what_the_host_and_unmeasured_kernels_take_is_told_apart(watched):
    """A plan of cuDNN for each new length, forward and backward; a copy that waits; a bicubic resize backward, which nobody measured."""
    rows = watched["kinds"]["kernels"]
    assert rows.count(["host", 52_000_000]) == 4, "of three steps two lengths"
    assert sum(row[0] == "wait" for row in rows) == 3, "each step copies its batch"
    assert sum(row[0] == "guess" for row in rows if row[0] != "phase") >= 3
    flat = 4 * (128 * 16 + 128 * 32 + 2 * 128)
    assert watched["kinds"]["events"].count(flat) == 4, "moved into one block, and the gradient of each step"


def test_a_step_of_unmeasured_kernels_has_a_range_and_no_point():
    rows = [("phase", "build"), *[one for n in range(3) for one in (("guess", 10**10, 8), ("phase", f"opt{n}"))]]
    tape = ScriptTape()
    tape.kernels = rows
    time = predict_script_time(tape, speed_from_row(find_gpu("h200")))
    assert time.step_seconds is None and time.range[1] > 5 * time.range[0] > 0 and "never measured" in time.notes[0]


def test_batches_of_changing_length_are_drawn_for_longer(watched):
    assert watched["lengths"]["steps"] == 50


def test_reserved_memory_that_still_grows_is_told():
    tape = ScriptTape()
    tape.events = [64 << 20, ~0, "zero0", 90 << 20, ~1, "zero1", 120 << 20, ~2, "zero2"]
    assert "0.2 GiB after 1 steps, 0.3 after 3" in describe_growth(tape, 280 << 20, "", 3)[0]
    assert describe_growth(tape, 154 << 20, "", 3) == ()


def test_a_larger_batch_to_come_is_looked_for(watched):
    slow = watched["looks"]
    assert slow["error"] == "" and slow["steps"] >= 5 and 4 * 4096 * 512 not in slow["events"], (
        "no time was left for it"
    )
    reply = watched["ahead"]
    assert 5 < reply["steps"] < 15 and 4 * 4096 * 512 in reply["events"], "the 60th of 90"
    assert reply["error"] == "", "the loop has no batches left"


def test_a_step_that_comes_every_16_is_seen(watched):
    """The backward pass of the penalty's gradient needs the gradient of tanh twice."""
    kept = [event for event in watched["penalty"]["events"] if event == 4 * 64 * 2048]
    steps = watched["penalty"]["steps"]
    assert steps > 16 and len(kept) % steps, "one step has more of them"


def test_what_is_not_modelled_is_undecided(watched):
    assert watched["autocast"]["error"] == "", "weights that autocast has cast are those of this weight"
    assert "backward pass of a backward pass" in watched["twice"]["error"]
    assert watched["compiled"]["unmodelled"] == watched["compiled"]["lessened"] != []


def test_workspaces_that_nobody_can_know_are_told(watched):
    assert watched["files"]["tried"] == 1 and "empty" in watched["files"]["events"]
    assert not watched["files"]["unmodelled"] and not watched["loop"]["tried"]
    told = [name for name in ("files", "loop") if "cuDNN's workspaces" in str(watched[name]["notes"])]
    assert told == ["files"], "only where there are convolutions"


def test_what_cannot_be_known_is_told_with_its_line(watched):
    assert [place for place, _ in watched["assumed"]["assumed"]] == ["assumed.py:9"]
    assert [place for place, _ in watched["selected"]["larger"]] == ["selected.py:7"]
    assert not watched["loop"]["assumed"] and not watched["loop"]["larger"]


def test_a_crash_is_one_sentence_with_its_line(watched):
    assert watched["crash"]["error"].startswith("RuntimeError: ") and watched["crash"]["error"].endswith("(crash.py:3)")
    assert "Traceback" in watched["crash"]["traceback"]
    assert "no --data was given" in watched["exits"]["error"]
    assert "standard input" in watched["asks"]["error"]
    assert watched["packs"]["error"].startswith("not watched: ") and watched["packs"]["error"].endswith("(packs.py:2)")
    assert "to be on the same device, but found cuda and meta (apart.py:2)" in watched["apart"]["error"]


def test_an_end_before_a_step_is_no_answer(watched):
    assert watched["ends"]["error"] == "the script ended itself before an optimizer step"
    assert (watched["leaves"]["error"], watched["leaves"]["steps"]) == ("", 1), "what it did is counted"


def test_what_is_saved_is_loaded_and_threads_are_watched(watched):
    assert (watched["saves"]["error"], watched["saves"]["steps"]) == ("", 3), watched["saves"]["traceback"]


def test_ddp_holds_every_gradient_once_more(watched):
    _, alone, _ = predict(watched["loop"])
    _, shared, _ = predict(watched["ranks_of_4"])
    assert shared.peak_allocated - alone.peak_allocated == pytest.approx(4 * WEIGHTS, rel=0.15)


def test_files_are_as_they_were(watched):
    folder = watched["folder"]
    assert (folder / "mine.txt").read_text() == "changed" and not (folder / "other.txt").exists()
    assert restore_files(str(folder / "files.py.journal"), str(folder)) == []
    assert (folder / "mine.txt").read_text() == "mine" and (folder / "other.txt").read_text() == "other"
    assert not (folder / "out").exists() and (folder / "data" / "rows.txt").read_text() == "rows"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("train.py --lr 1", Launch("script", ("train.py", "--lr", "1"))),
        ("python -m pkg.train a", Launch("module", ("pkg.train", "a"), python="python")),
        (
            "torchrun --standalone --nproc_per_node=4 train.py -x",
            Launch("script", ("train.py", "-x"), 4, "torchrun", ("--standalone", "--nproc_per_node=4")),
        ),
        (
            "torchrun --nnodes 2 --nproc-per-node gpu -m pkg.t",
            Launch("module", ("pkg.t",), 0, "torchrun", ("--nnodes", "2", "--nproc-per-node", "gpu")),
        ),
        (
            "accelerate launch --num_processes 8 t.py",
            Launch("script", ("t.py",), 8, "accelerate", ("--num_processes", "8")),
        ),
        (
            "deepspeed --num_gpus 2 t.py --deepspeed z.json",
            Launch("script", ("t.py", "--deepspeed", "z.json"), 2, "deepspeed", ("--num_gpus", "2")),
        ),
        ("axolotl train cfg.yml", Launch("module", ("axolotl.cli.train", "cfg.yml"), launcher="accelerate")),
        ("trl sft --config a.yml", Launch("module", ("trl.scripts.sft", "--config", "a.yml"), launcher="accelerate")),
        ("llamafactory-cli train a.yml", Launch("program", ("llamafactory-cli", "train", "a.yml"))),
    ],
)
def test_a_launcher_is_told_from_what_it_starts(words, found):
    assert parse_launch(words.split()) == found


def test_a_recording_that_does_not_add_up_is_refused(watched):
    for wrong in ({"events": ["what"]}, {"lines": []}, {"events": [-1]}, {"steps": "two"}):
        with pytest.raises(ValueError, match="recording"):
            validate_recording(watched["loop"] | wrong)


@pytest.mark.parametrize("words", [("--read-only", "train.py"), ("llama-3.1-8b", "train.py")])
def test_a_script_that_is_only_read_never_runs(tmp_path, words):
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    ran = gpuready("fit", "--on", "h100", *words, cwd=tmp_path)
    assert "is a script: without running it" in ran.err and ran.code == 2
    assert not (tmp_path / "ran").exists()


def test_python_and_mcp_read_a_script_unless_they_say_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("open('ran', 'w')\n")
    with pytest.raises(Exception, match="ColossalAI"):
        fit("train.py", on="h100")
    assert not (tmp_path / "ran").exists()


def test_without_torch_the_next_command_is_told(tmp_path):
    (tmp_path / "train.py").write_text(LOOP)
    ran = gpuready("fit", "--python", sys.executable, "train.py", cwd=tmp_path)
    assert ran.code == 2 and "has no torch" in ran.err and "--python" in ran.err, ran.err
    after = gpuready("fit", "train.py", "--lr", "3", "--on", "h100x8", "--python", sys.executable, cwd=tmp_path)
    order = f"gpuready fit --on h100x8 --python {sys.executable} train.py --lr 3)"
    assert after.code == 2 and "words after the script belong to it" in after.err and order in after.err, after.err


def test_the_watch_ends_with_who_started_it(tmp_path):
    (tmp_path / "train.py").write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n")
    card = {"name": "NVIDIA H200", "capability": [9, 0], "memory": 1 << 37, "processors": 132}
    asked = {"kind": "script", "words": ["train.py"], "card": card, "count": 1, "world": 1, "steps": 2, "seconds": 9}
    (tmp_path / "asked").write_text(json.dumps(asked | {"launcher": "", "launcher_words": [], "exact": True}))
    run = [target_environment.python(), str(SCRIPTS / "watch.py"), "asked"]
    parent = subprocess.Popen([sys.executable, "-c", f"import subprocess; subprocess.run({run!r})"], cwd=tmp_path)
    pid = tmp_path / "pid"
    assert wait_until(lambda: pid.exists() and pid.read_text())
    parent.kill(), parent.wait()
    stat = Path(f"/proc/{pid.read_text()}/stat")
    assert wait_until(lambda: not stat.exists() or ") Z " in stat.read_text()), "nobody is left, or nobody reaped it"


def test_the_command_runs_a_script_and_leaves_nothing(tmp_path):
    (tmp_path / "train.py").write_text(LOOP.replace("for step", "open('log.txt', 'w').write('x')\nfor step"))
    ran = gpuready(
        "fit",
        "--python",
        target_environment.python(),
        "--on",
        "h100",
        "--steps",
        "2",
        "--json",
        "train.py",
        cwd=tmp_path,
        timeout=300,
    )
    result = json.loads(ran.out)
    assert (ran.code, result["verdict"], result["kind"]) == (0, "fits", "script"), ran.err
    assert "running train.py" in ran.err and "no sandbox" in ran.err
    assert result["lines"][0]["where"].startswith("train.py:") and result["time"]["range"][1] > 0
    assert result["parts"]["optimizer"] == pytest.approx(8 * WEIGHTS, rel=0.001)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["train.py"]
