"""The commands as Python functions: answers, refusals, notebooks, and names that are rooms as well."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import gpuready
from gpuready.render import html as html_module
from tests.running import SRC

MACHINES = Path(__file__).parent.parent / "machines"
H200, OLD = str(MACHINES / "h200.json"), MACHINES / "old-driver.json"
HOSTILE = '<script>alert(1)</script>"><img src=x onerror=alert(2)>\x1b[31m\u202e'


def test_check_answers_with_a_verdict_a_screen_and_json():
    answer = gpuready.check("transformers", on=H200)
    assert (answer.verdict, answer.exit) == ("clear", 0)
    assert answer.data["verdict"] == "clear" == json.loads(answer.json())["verdict"]
    assert "no problems found" in str(answer) and max(map(len, str(answer).splitlines())) <= 80
    assert "\x1b" not in str(answer) and repr(answer) == str(answer)
    assert answer.found[0].contract.framework == "transformers"


def test_what_is_stated_and_paths_that_are_objects():
    assert gpuready.check("vllm", on="h100", driver="525.60.13", torch="2.9.0+cu128").exit == 1
    assert gpuready.check("transformers", on=OLD).exit == 1
    several = gpuready.check("transformers", "vllm", on="h100x8", wants=["bf16", "flash-attn"])
    assert len(several.data["reports"]) == 2 and str(several).count(" on h100x8") >= 2
    assert gpuready.probe("rtx4090").found.value_if_known("gpu.count") == 1


def test_the_other_verbs():
    assert gpuready.fit("llama-3.1-8b", on="h100", method="lora", gradient_checkpointing=True).verdict == "fits"
    result = gpuready.diagnose(text="RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", look=False)
    assert result.data["code"] == "MEM001"
    assert gpuready.plan("vllm", on="h100", resolve=False).verdict == "plan"
    assert "export" in str(gpuready.env("vllm", on="h100"))
    assert "set -gx" in str(gpuready.env("vllm", on="h100", shell="fish"))
    assert gpuready.explain("drv001").data["code"] == "DRV001" and len(gpuready.explain().data["rules"]) > 100
    assert gpuready.contract("vllm").data["framework"] == "vllm" and gpuready.contract().data["contracts"]


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpuready.check("nosuch"),
        lambda: gpuready.check("vllm", on="nosuchgpu"),
        lambda: gpuready.check("vllm", on="/no/such.json"),
        lambda: gpuready.check("vllm", on=3),
        lambda: gpuready.check("vllm", on="h100", ram="lots"),
        lambda: gpuready.plan(),
        lambda: gpuready.fit(),
        lambda: gpuready.fit("llama-3.1-8b", micro_batch=0),
        lambda: gpuready.fit("llama-3.1-8b", method="magic"),
        lambda: gpuready.fit("llama-3.1-8b", largest="loss"),
        lambda: gpuready.diagnose(),
        lambda: gpuready.diagnose("/no/such.log"),
        lambda: gpuready.explain("XYZ999"),
        lambda: gpuready.env("vllm", shell="tcsh"),
    ],
)
def test_bad_input_is_one_sentence(call):
    with pytest.raises(gpuready.Refused) as refused:
        call()
    assert str(refused.value).count("\n") == 0 and len(str(refused.value)) > 10


def test_a_keyword_that_nobody_knows_is_a_type_error():
    with pytest.raises(TypeError, match="colour"):
        gpuready.check("vllm", on="h100", colour="red")
    with pytest.raises(TypeError, match="batch"):
        gpuready.fit("llama-3.1-8b", batch=3)


# -- a name that is a room and a command --------------------------------------------------------------------


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(SRC)}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["check", "diagnose", "fit", "plan", "probe", "prove"])
def test_a_room_stays_a_room_however_it_is_imported(name):
    first = f"import gpuready; a = gpuready.{name}; import gpuready.{name} as b; from gpuready import {name} as c\n"
    other = f"from gpuready import {name} as a; import gpuready; b = gpuready.{name}; c = b\n"
    inner = f"import gpuready.workflow, gpuready.{name}; import gpuready; a = b = c = gpuready.{name}\n"
    for how in (first, other, inner):
        result = run(how + "import types; print(a is b is c, callable(a), isinstance(a, types.ModuleType), a.__file__)")
        assert result.startswith("True True True") and f"gpuready/{name}" in result


def test_calling_a_package_is_the_command():
    code = "import gpuready.fit; import gpuready; from gpuready.fit.job.records import FitJob\n"
    code += "found = [gpuready.fit('qwen2.5-7b', on=gpu) for gpu in ('h100', 'rtx4090')]\n"
    code += "print(*((one.verdict, one.exit) for one in found))"
    assert run(code).strip() == "('fits', 0) ('does not fit', 1)"


def test_the_import_loads_nothing():
    result = run("import sys; before = set(sys.modules); import gpuready; print(*sorted(set(sys.modules) - before))")
    assert {name for name in result.split() if name.startswith("gpuready")} == {"gpuready"}


def test_dir_tells_the_commands():
    assert {"check", "fit", "bench", "explain", "report", "Refused", "launch"} <= set(dir(gpuready))


# -- notebooks ----------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.events = set(), set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.events |= {name for name, _ in attrs if name.startswith("on")}


def hostile(tmp_path: Path) -> Path:
    data = json.loads(Path(H200).read_text())
    data["host"] = HOSTILE
    for fact in data["facts"]:
        if fact["key"] in ("gpu.name", "os.name", "os.version"):
            fact["value"] = [HOSTILE] if isinstance(fact["value"], list) else HOSTILE
    (tmp_path / "evil.json").write_text(json.dumps(data))
    return tmp_path / "evil.json"


@pytest.mark.parametrize("drawn", [True, False])
def test_what_a_machine_says_of_itself_is_text_in_a_notebook(tmp_path, drawn, monkeypatch):
    if not drawn:
        monkeypatch.setattr(
            html_module, "render_report_fragments", lambda _: (_ for _ in ()).throw(ImportError("jinja2"))
        )
    html = gpuready.check("transformers", on=hostile(tmp_path))._repr_html_()
    page = Tags()
    page.feed(html)
    assert not page.tags & {"script", "img", "iframe"} and not page.events
    assert "&lt;script&gt;" in html and "\x1b" not in html


def test_a_log_is_text_in_a_notebook():
    log = (
        f"Traceback (most recent call last):\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB {HOSTILE}\n"
    )
    html = gpuready.diagnose(text=log, look=False)._repr_html_()
    page = Tags()
    page.feed(html)
    assert page.tags == {"pre"} and not page.events and "\x1b" not in html
    assert "monospace" in html and "white-space:pre;" in html  # columns stay columns


def test_ipython_shows_html_and_plain_text():
    from IPython.core import formatters

    answer = gpuready.explain("DRV001")
    shown, _ = formatters.DisplayFormatter().format(answer)
    assert shown["text/plain"] == str(answer) and shown["text/html"] == answer._repr_html_()
    assert "<pre" in shown["text/html"] and "driver" in shown["text/plain"]
