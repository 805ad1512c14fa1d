"""The web gives the answers of the command line, byte for byte, also to many at once; and nothing holds it up."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import pytest
from starlette.requests import Request

from gpuready.cli import run_parsed_command
from gpuready.cli.parser import parse_command_line
from gpuready.render.layout import Screen
from gpuready.system.process.worker_pool import PoolBusy, WorkerLost, WorkerPool, WorkerTimeout
from gpuready.web.app import MAX_KEPT_REPORTS, WebApp
from gpuready.web.query_service import HttpReply, QueryService, ResponseCache
from tests.web.served import ask_until_complete

MACHINE = next(iter(sorted((Path(__file__).parent.parent / "machines").glob("*.json"))))
SAME = {
    "check?framework=axolotl&on=h100x8": "check axolotl --on h100x8",
    "check?framework=axolotl&on=v100x2&driver=470.57.02&strict=1": "check axolotl --on v100x2 --driver 470.57.02 --strict",
    "check?framework=trl&framework=vllm&on=h100&wants=bf16&torch=2.13.0%2Bcu126": "check trl vllm --on h100 --wants bf16 --torch 2.13.0+cu126",
    "check?framework=transformers%3D%3D5.0&on=a100&wants=flash-attn&ignore=GPU005%3Dknown": "check transformers==5.0 --on a100 --wants flash-attn --ignore GPU005=known",
    "plan?framework=axolotl&on=h100x8": "plan axolotl --on h100x8 --no-resolve",
    "plan?framework=vllm&on=v100x4": "plan vllm --on v100x4 --no-resolve",
    "plan?framework=trl&framework=axolotl&on=h100": "plan trl axolotl --on h100 --no-resolve",
    "env?framework=axolotl&on=h100x8": "env axolotl --on h100x8",
    "fit?model=qwen2.5-0.5b&on=rtx4090": "fit qwen2.5-0.5b --on rtx4090",
    "fit?model=qwen2.5-0.5b&on=rtx3060&method=lora&seq=8k&gradient-checkpointing=on&zero=2&padded=1": "fit qwen2.5-0.5b --on rtx3060 --method lora --seq 8k --gradient-checkpointing --zero 2 --padded",
    "fit?model=qwen2.5-0.5b&on=rtx4090&gradient-checkpointing=reentrant&max=micro-batch": "fit qwen2.5-0.5b --on rtx4090 --gradient-checkpointing=reentrant --max micro-batch",
    "explain": "explain",
    "explain?code=DRV001": "explain DRV001",
    "contracts": "contract list",
    "contracts?framework=trl": "contract show trl",
}  # fmt: skip


@cache
def by_command(line: str) -> str:
    """What the command says, of what is not here."""
    parsed = parse_command_line([*line.split(), "--json"])
    return run_parsed_command(parsed, Screen(), time.perf_counter())[0]


@pytest.mark.parametrize("question", SAME, ids=list(SAME.values()))
def test_the_answer_is_the_command_lines(server, question):
    reply = server.ask(f"/api/{question}")
    assert reply.status == 200, reply.text
    assert reply.headers["content-type"] == "application/json"
    assert reply.text == by_command(SAME[question])


def test_and_that_of_the_program_itself(server):
    words = [sys.executable, "-m", "gpuready", "check", "trl", "--on", "a100x2", "--driver", "550.54.14", "--json"]
    ran = subprocess.run(words, capture_output=True)
    reply = server.ask("/api/check?framework=trl&on=a100x2&driver=550.54.14")
    assert reply.body == ran.stdout
    assert reply.headers["gpuready-exit"] == str(ran.returncode)


def test_a_log_is_diagnosed_as_by_the_command(server, tmp_path, monkeypatch):
    log = "step 3\nTraceback (most recent call last):\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    (tmp_path / "run.log").write_text(log)
    monkeypatch.chdir(tmp_path)
    reply = server.ask("/api/diagnose", "POST", log.encode())
    assert reply.status == 200 and reply.json["code"] == "MEM001"
    assert reply.text == by_command.__wrapped__("diagnose run.log")
    assert reply.text == server.ask("/api/diagnose", "POST", log.encode()).text  # nothing of the first is left


def test_a_recording_gives_its_report(server):
    reply = server.ask("/api/report?framework=transformers", "POST", MACHINE.read_bytes())
    assert reply.status == 200, reply.text[:300]
    assert reply.text.startswith("<!doctype html>") and reply.headers["content-type"].startswith("text/html")
    again = server.ask(reply.headers["location"])
    assert again.body == reply.body
    assert again.headers["content-security-policy"].startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in again.headers["content-security-policy"]
    assert server.ask(reply.headers["location"], token=None).status == 401


def test_only_the_last_reports_are_kept(monkeypatch):
    async def answer(*_):
        return HttpReply(200, b"<!doctype html>")

    web = WebApp((), 5, None)
    monkeypatch.setattr(web, "_run_on_upload", answer)
    request = Request({"type": "http", "query_string": b"framework=trl", "headers": []})
    places = [asyncio.run(web.report_upload(request)).headers["location"] for _ in range(MAX_KEPT_REPORTS + 3)]
    assert [f"/report/{name}" for name in web.reports] == places[-MAX_KEPT_REPORTS:]


def test_what_a_recording_says_stays_text(server):
    document = json.loads(MACHINE.read_text())
    document["host"] = "<script>alert(1)</script>"
    reply = server.ask("/api/report?framework=transformers", "POST", json.dumps(document).encode())
    assert reply.status == 200 and "<script>alert(1)" not in reply.text


@pytest.mark.parametrize("body", [b"{}", b"[", b"\x00\xff" * 99, b'{"facts":[{"key":1}],"schema":1}', b"[" * 100_000])
def test_what_is_no_recording_is_refused_in_a_sentence(server, body):
    reply = server.ask("/api/report", "POST", body)
    assert reply.status == 400 and "recording.json" in reply.json["error"]


def test_many_at_once_get_what_one_gets(server):
    questions = list(SAME)[:9] * 4
    with ThreadPoolExecutor(16) as pool:
        result = list(pool.map(lambda question: server.ask(f"/api/{question}").text, questions))
    alone = {question: by_command(SAME[question]) for question in set(questions)}
    assert all(text == alone[question] for question, text in zip(questions, result, strict=True))


# -- the page's question ------------------------------------------------------------------------------------------

WHATIF = "/api/whatif?framework=trl&gpu=rtx4090&count=2&model=qwen2.5-0.5b&micro-batch=64"


def test_the_page_gets_all_parts_in_one(server):
    result = ask_until_complete(server, WHATIF)
    assert result["pending"] == [] and set(result["parts"]) == {"check", "plan", "env", "memory", "fit"}
    fit = server.ask("/api/fit?model=qwen2.5-0.5b&on=rtx4090x2&micro-batch=64").json
    assert result["parts"]["fit"] == fit and fit["verdict"] == "does not fit" and fit["proposals"]
    check = server.ask("/api/check?framework=trl&on=rtx4090x2").json
    assert all(check[name] == value for name, value in result["parts"]["check"].items())
    assert "proposals" in result["parts"]["memory"] and result["parts"]["memory"]["peak_device"] == fit["peak_device"]


def test_what_is_not_there_yet_is_named(server):
    """The answer comes at once; what takes longer is said to be pending, and is there when one waits."""
    question = WHATIF.replace("64", "48") + "&seq=4096"
    first = server.ask(question).json
    parts = {"check", "plan", "env", "memory", "fit"}
    assert "fit" in first["pending"] and set(first["pending"]) | set(first["parts"]) == parts
    ask_until_complete(server, question)
    assert server.ask(question).json["parts"]["memory"]["verdict"] == "does not fit"


def test_of_nothing_there_is_nothing(server):
    assert server.ask("/api/whatif").json["parts"] == {}


def test_a_job_that_fits_needs_no_search(server):
    result = ask_until_complete(server, "/api/whatif?gpu=h100&model=qwen2.5-0.5b")
    assert result["parts"]["fit"] == result["parts"]["memory"] and result["parts"]["fit"]["fits"] is True


# -- the crew -----------------------------------------------------------------------------------------------------

CHECK = {"words": ["check", "--json", "--on=h100", "--", "trl"]}


def test_a_worker_that_is_late_is_replaced(tmp_path):
    async def go():
        workers = WorkerPool("gpuready.web.worker", [str(tmp_path)])
        try:
            with pytest.raises(WorkerTimeout):
                await workers.send_request(CHECK, seconds=0.001)
            reported, text = await workers.send_request(CHECK, seconds=60)
            assert reported["status"] == 200 and json.loads(text)["host"] == "h100"
            pid = workers._workers[0].process.pid
            workers._workers[0].process.kill()
            with pytest.raises(WorkerLost):
                await workers.send_request({"words": ["explain"]}, seconds=60)
            assert (await workers.send_request(CHECK, seconds=60))[1] == text
            assert workers._workers[0].process.pid != pid
        finally:
            await workers.stop_all()
        assert workers._workers[0].process is None

    asyncio.run(go())


def test_who_leaves_does_not_take_the_answer_of_the_next(tmp_path):
    async def go():
        workers = WorkerPool("gpuready.web.worker", [str(tmp_path)])
        try:
            asked = [asyncio.ensure_future(workers.send_request(CHECK, seconds=60)) for _ in range(3)]
            await asyncio.sleep(0.05)
            asked[0].cancel()
            asked[1].cancel()
            assert json.loads((await asked[2])[1])["host"] == "h100"
            other = {"words": ["explain", "--json", "--", "DRV001"]}
            assert json.loads((await workers.send_request(other, seconds=60))[1])["code"] == "DRV001"
        finally:
            await workers.stop_all()

    asyncio.run(go())


def test_too_many_are_turned_away(tmp_path, monkeypatch):
    monkeypatch.setattr("gpuready.system.process.worker_pool.MAX_WAITING", 2)

    async def go():
        workers = WorkerPool("gpuready.web.worker", [str(tmp_path)])
        service = QueryService(workers)
        try:
            waiting = [asyncio.ensure_future(workers.send_request(CHECK, seconds=60)) for _ in range(3)]
            await asyncio.sleep(0)
            with pytest.raises(PoolBusy):
                await workers.send_request(CHECK, seconds=60)
            assert (await service.answer_command(["explain", "--json"])).status == 503
            assert len({text for _, text in await asyncio.gather(*waiting)}) == 1
            assert (
                await service.answer_command(["explain", "--json"])
            ).status == 200  # a refusal for want of room is not kept
        finally:
            await workers.stop_all()

    asyncio.run(go())


# -- what is kept -------------------------------------------------------------------------------------------------


def test_what_is_kept_has_a_bound_and_the_oldest_goes():
    kept = ResponseCache(max_bytes=10_000)
    for number in range(1000):
        kept.store_answer(number, number, 400)
        kept.get_cached(0 if number < 5 else number)
        assert kept.used_bytes <= 10_000
    assert kept.get_cached(999) == 999 and kept.get_cached(1) is None
    kept.store_answer("large", 1, 20_000)
    assert kept.get_cached("large") is None and kept.used_bytes == 0


def test_an_answer_about_this_machine_is_asked_again():
    kept = ResponseCache()
    kept.store_answer("here", 1, 1, seconds=-1)
    assert kept.get_cached("here") is None and kept.used_bytes == 0


def test_the_same_question_is_worked_out_once():
    async def go():
        kept, count = ResponseCache(), []

        async def ask():
            count.append(1)
            await asyncio.sleep(0.01)
            return "said"

        assert await asyncio.gather(*(kept.run_once("q", ask) for _ in range(20))) == ["said"] * 20
        assert len(count) == 1

    asyncio.run(go())
