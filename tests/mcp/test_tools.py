"""``gpuready mcp`` as an agent meets it over stdio: its tools, their answers, and the files that they may read."""

from __future__ import annotations

import json

import pytest

import gpuready
from gpuready.mcp import server, tools
from gpuready.workflow.allowed_paths import AllowedPaths
from tests.mcp.agents import EVIL, READERS
from tests.running import gpuready as command

# -- what an agent gets -------------------------------------------------------------------------------------


def test_every_tool_has_a_precise_schema(agent):
    listed = agent.portal.call(agent.client.list_tools).tools
    assert {tool.name for tool in listed} == READERS | {"install_plan", "install_apply"}
    for tool in listed:
        assert len(tool.description) > 80 and tool.input_schema["additionalProperties"] is False
        assert tool.annotations.read_only_hint is (tool.name not in ("install_apply", "prove"))
        for name, field in tool.input_schema["properties"].items():
            assert "type" in field or "enum" in field or "anyOf" in field, (tool.name, name)


def test_by_default_no_tool_changes_anything():
    listed = server.ToolServer(AllowedPaths(["."])).describe_tools()
    assert {tool.name for tool in listed} == READERS and not any(t.annotations.destructive_hint for t in listed)
    assert [t.name for t in listed if not t.annotations.read_only_hint] == ["prove"]  # it runs the environment's Python
    assert not any(t.annotations.open_world_hint for t in listed)
    (plan,) = (tool for tool in listed if tool.name == "plan")
    assert "resolve" not in plan.input_schema["properties"]  # to resolve may be to build, which runs strangers' code


def test_the_same_bytes_as_the_command_line_over_stdio(agent, place):
    wrong, (text,) = agent("check", frameworks=["transformers"], on="h200.json", detail="full")
    assert not wrong and text == command("check", "transformers", "--on", "h200.json", "--json", cwd=place).out
    assert agent("explain", code="DRV001")[1] == [gpuready.explain("DRV001").json()]


@pytest.mark.parametrize(
    ("name", "requested", "kept"),
    [
        ("check", {"frameworks": ["axolotl"], "on": "h200.json"}, "findings"),
        ("check", {"frameworks": ["vllm", "trl"], "on": "h100"}, "reports"),
        ("plan", {"frameworks": ["axolotl", "vllm", "trl"], "on": "h100"}, "plans"),
        ("contract", {"framework": "axolotl"}, "needs"),
        ("explain", {}, "rules"),
        ("fit", {"model": ["qwen2.5-0.5b"], "on": "h100", "gpus": True}, "gpus"),
    ],
)
def test_an_answer_is_short_and_says_what_it_left_out(agent, name, requested, kept):
    wrong, (text,) = agent(name, **requested)
    short, whole = json.loads(text), json.loads(agent(name, **requested, detail="full")[1][0])
    assert not wrong and len(text) <= tools.MAX_SUMMARY and short[kept] and "detail=full" in short["more"]
    assert short.get("verdict") == whole.get("verdict") and short.get("exit") == whole.get("exit")
    gone = {field for field in whole if field not in short}
    assert gone <= set(short.get("left_out", ()))
    if name == "check" and kept == "findings":
        assert short["findings"] == whole["findings"]  # with what was found, what is needed and the fix


def test_no_list_of_a_summary_is_cut_in_silence():
    rows = [{"says": "x" * 100, "n": n} for n in range(500)]
    short = json.loads(tools.summarize_answer(json.dumps({"verdict": "not-ready", "findings": rows})))
    count = len(short["findings"])
    assert 10 < count < 500 and short["left_out"] == {"findings": f"{count} of 500 shown, shortened"}


def test_one_text_is_taken_for_a_list(agent):
    listed = agent("check", frameworks=["vllm"], on="h100")
    assert agent("check", frameworks="vllm", on="h100") == listed == agent("check", frameworks='["vllm"]', on="h100")
    assert agent("check", frameworks="[vllm", on="h100")[0]


def test_a_text_cannot_forge_the_end_of_an_answer(monkeypatch):
    numbers = iter(["a" * 16, "b" * 16])
    monkeypatch.setattr(server, "token_hex", lambda size: next(numbers))
    begin, end = server.make_fence(f"END gpuready data {'a' * 16}")
    assert "b" * 16 in begin and end == f"END gpuready data {'b' * 16}"


def test_a_screen_on_request(agent):
    wrong, (text,) = agent("fit", model=["llama-3.1-8b"], on="h100", job={"method": "lora"}, answer="screen")
    assert not wrong and text == str(gpuready.fit("llama-3.1-8b", on="h100", method="lora")) + "\n"


def test_look_up_verify_and_diagnose(agent):
    assert json.loads(agent("plan", frameworks=["vllm"], on="h100")[1][0])["verdict"] == "plan"
    assert (
        json.loads(agent("diagnose", text="CUDA out of memory. Tried to allocate 2.00 GiB")[1][0])["code"] == "MEM001"
    )
    assert (
        json.loads(agent("check", frameworks=["vllm"], on="h100", what_if={"driver": "525.60.13"})[1][0])["exit"] == 1
    )
    assert (
        json.loads(agent("contract")[1][0])["contracts"]
        and "variables" in agent("env", framework="vllm", on="h100")[1][0]
    )


def test_a_proof_is_run_in_the_environment_of_the_server(agent):
    wrong, texts = agent("prove", words=["bf16"])
    document = json.loads(texts[0])
    assert not wrong and document["evidence"]["proofs"] and document["verdict"] in ("not-ready", "undecided", "ready")


@pytest.mark.parametrize(
    ("name", "requested", "says"),
    [
        ("nosuch", {}, "there is no tool"),
        ("check", {"frameworks": 5}, "is not of type"),
        ("check", {"colour": "red"}, "colour"),
        ("check", {"frameworks": ["x" * 500]}, "too long"),
        ("check", {"frameworks": ["vllm"], "strict": "yes"}, "boolean"),
        ("check", {"frameworks": ["nosuch"]}, "no known requirements"),
        ("plan", {}, "frameworks"),
        ("fit", {"model": ["llama-3.1-8b"], "job": {"method": "magic"}}, "is not one of"),
        ("fit", {"model": ["llama-3.1-8b"], "job": {"micro_batch": 0}}, "minimum of 1"),
        ("diagnose", {}, "not both"),
    ],
)
def test_bad_arguments_are_one_sentence(agent, name, requested, says):
    wrong, (text,) = agent(name, **requested)
    assert wrong and says in text and "\n" not in text and "Traceback" not in text


# -- files (E15, E16) ---------------------------------------------------------------------------------------

OUT = "leads outside the folders that may be read"


@pytest.mark.parametrize(
    ("name", "requested", "says"),
    [
        ("check", {"on": "../../etc/passwd"}, OUT),
        ("check", {"on": "/etc/passwd"}, OUT),
        ("check", {"on": "/etc/no-such-file"}, OUT),  # nobody learns what is there
        ("check", {"on": "out.json"}, OUT),
        ("check", {"on": "out/secret.json"}, OUT),
        ("check", {"on": "pipe.json"}, "not a regular file"),
        ("check", {"on": "large.json"}, "bytes"),
        ("check", {"on": "nul\0.json"}, "not a path"),
        ("check", {"frameworks": ["vllm"], "contract": "/etc/hostname"}, OUT),
        ("check", {"frameworks": ["vllm"], "on": "h100", "config": "out/secret.json"}, OUT),
        ("check", {"frameworks": ["vllm"], "on": "h100", "model": "../secret.json"}, OUT),
        ("check", {"frameworks": ["vllm"], "on": "h100", "model": "out/model"}, "names no size"),
        ("check", {"python": "/usr"}, OUT),
        ("diagnose", {"logs": ["/proc/self/environ"]}, OUT),
        ("diagnose", {"logs": ["/dev/stdin"]}, OUT),
        ("diagnose", {"logs": ["-"]}, "cannot be read"),
        ("diagnose", {"logs": ["out.log"]}, OUT),
        ("diagnose", {"logs": ["run.log"], "on": "out.json"}, OUT),
        ("fit", {"model": ["/etc/machine-id"]}, OUT),
        ("fit", {"model": ["out/secret.json"]}, OUT),
        ("fit", {"model": ["out/model"], "on": "h100"}, "config.json"),
        ("fit", {"model": ["job.yml"], "on": "h100"}, "not a folder with a config.json"),
        ("install_plan", {"environment": "/opt/env", "framework": "vllm"}, OUT),
        ("install_plan", {"environment": "env", "lock": "/etc/passwd"}, OUT),
    ],
)
def test_only_files_of_the_project_are_read(agent, name, requested, says):
    wrong, (text,) = agent(name, **requested)
    assert wrong and says in text, text


def test_a_link_that_stays_inside_and_a_folder_with_a_link_out(agent):
    assert not agent("check", frameworks=["transformers"], on="same.json")[0]
    document = json.loads(agent("diagnose", logs=["logs"])[1][0])
    assert document["code"] != "MEM001"  # the log that the link leads to is not read


def test_a_log_that_speaks_to_the_agent_is_quoted_data(agent, place):
    wrong, (text,) = agent("diagnose", logs=["run.log"], detail="full")
    document = json.loads(text)
    assert not wrong and document["code"] == "MEM001" and tools.QUOTED_DATA_NOTICE in server.INSTRUCTIONS
    quoted = json.dumps(document["evidence"])
    assert EVIL in quoted and EVIL not in document["says"] and EVIL not in json.dumps(document["fix"])
    assert text == command("diagnose", "run.log", "--json", cwd=place).out


@pytest.mark.parametrize("name", ["\0", "a\0b", "h100\0.json"])
def test_a_nul_in_a_name_is_one_sentence(agent, name):
    wrong, (text,) = agent("check", frameworks=["vllm"], on=name)
    assert wrong and "NUL" in text and "failed" not in text
