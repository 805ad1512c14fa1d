"""Two packages that do not fit: which two, and which of them is too new or too old."""

from __future__ import annotations

import pytest

from gpuready.diagnose.complaint import read_complaint
from gpuready.diagnose.version_conflict import check_direction, find_conflict
from gpuready.logs.logged_exception import LoggedException, StackFrame
from gpuready.workflow.diagnose import diagnose_logs

SITE = "/home/me/venv/lib/python3.12/site-packages"
OWN = "/home/me/train.py"
TABLE = {
    ("name", "lib:Gone"): {"package": "lib", "came": "", "gone": "2.0"},
    ("name", "lib:New"): {"package": "lib", "came": "1.5", "gone": ""},
    ("name", "lib:Brief"): {"package": "lib", "came": "1.5", "gone": "2.0"},
    ("module", "lib.old"): {"package": "lib", "came": "", "gone": "2.0"},
    ("parameter", "Trainer(tokenizer"): {"package": "lib", "came": "", "gone": "2.0"},
    ("parameter", "attend(mask"): {"package": "lib", "came": "1.5", "gone": ""},
    ("parameter", "*.compute_loss(items"): {"package": "lib", "came": "1.5", "gone": ""},
    ("parameter", "LoraConfig(corda"): {"package": "lib", "came": "1.5", "gone": ""},
    ("attribute", "Cache.seen"): {"package": "lib", "came": "", "gone": "2.0"},
    ("name", "*:New"): {"package": "lib", "symbol": "lib:New", "came": "1.5", "gone": ""},
    ("attribute", "*.get_seen_length"): {"package": "lib", "came": "", "gone": "2.0"},
    ("package", "lib"): {"package": "lib"},
}


def spans(kind: str, symbol: str):
    return [TABLE[kind, symbol]] if (kind, symbol) in TABLE else []


def raised(text: str, *files: str, code: str = "") -> LoggedException:
    type_, _, message = text.partition(": ")
    return LoggedException(1, 2, 2, type_, message, frames=tuple(StackFrame(file, 3, "f", code) for file in files))


USER = f"{SITE}/other/model.py"


@pytest.mark.parametrize(
    ("text", "files", "wanted"),
    [
        ("ImportError: cannot import name 'Gone' from 'lib' (/x/site-packages/lib/__init__.py)", [USER], ("lib", "other", "new", "2.0")),
        ("ImportError: cannot import name 'New' from 'lib'", [USER], ("lib", "other", "old", "1.5")),
        ("ImportError: cannot import name 'Brief' from 'lib'", [USER], ("lib", "other", "between", "1.5")),
        ("ImportError: cannot import name 'Unheard' from 'lib'", [USER], ("lib", "other", "", "")),
        ("ModuleNotFoundError: No module named 'lib.old.part'", [USER], ("lib", "other", "new", "2.0")),
        ("AttributeError: module 'lib' has no attribute 'Gone'", [OWN], ("lib", "user", "new", "2.0")),
        ("AttributeError: module lib has no attribute Gone", [OWN], ("lib", "user", "new", "2.0")),
        ("RuntimeError: Failed to import lib.a because of the following error (see above):\nNo module named 'lib.old'", [USER], ("lib", "other", "new", "2.0")),
        ("NameError: name 'New' is not defined", [USER], ("lib", "other", "old", "1.5")),
        ("AttributeError: 'tuple' object has no attribute 'get_seen_length'", [USER], ("lib", "other", "", "")),
        ("AttributeError: 'Cache' object has no attribute 'seen'", [OWN], ("lib", "user", "new", "2.0")),
        ("AttributeError: 'QwenConfig' object has no attribute 'rope'", [USER], ("transformers", "other", "", "")),
        ("TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'", [OWN], ("lib", "user", "new", "2.0")),
        ("TypeError: attend() missing 1 required positional argument: 'mask'", [USER], ("lib", "other", "new", "1.5")),
        ("TypeError: attend() got an unexpected keyword argument 'mask'", [USER], ("lib", "other", "old", "1.5")),
        ("TypeError: LoraConfig.__init__() got an unexpected keyword argument 'corda'", [f"{SITE}/lib/config.py"], ("lib", "saved", "old", "1.5")),
        ("TypeError: Linear.scale() got an unexpected keyword argument 'by'", [USER], ("", "other", "", "")),
        ("ImportError: cannot import name 'X' from partially initialized module 'lib.a' (circular)", [USER, f"{SITE}/lib/b.py"], ("lib", "other", "", "")),
        ("AttributeError: partially initialized module 'lib.a' has no attribute 'x'", [USER, f"{SITE}/lib/b.py"], ("lib", "other", "", "")),
        ("TypeError: flash_attn_func() got an unexpected keyword argument 'softcap'", [USER], ("", "other", "", "")),
        ("TypeError: Mine.compute_loss() got an unexpected keyword argument 'items'", [f"{SITE}/lib/t.py"], ("lib", "user", "new", "1.5")),
    ],
)  # fmt: skip
def test_which_two_and_in_which_direction(text, files, wanted):
    found = find_conflict(raised(text, *files), spans)
    assert found is not None
    assert (found.package, found.caller, found.direction, found.release) == wanted


@pytest.mark.parametrize(
    ("text", "files"),
    [
        ("ImportError: cannot import name 'Unheard' from 'lib'", [OWN]),  # a name that no release has: a misspelt one
        ("TypeError: steps() missing 1 required positional argument: 'count'", [OWN]),
        ("TypeError: Mine.__init__() got an unexpected keyword argument 'x'", [OWN]),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", [USER]),
        ("AttributeError: 'Sequential' object has no attribute 'lm_head'", [OWN]),
        ("AttributeError: 'Engine' object has no attribute 'x'", [USER]),
        ("ImportError: cannot import name 'Rows' from 'rows' (/home/me/rows.py)", [OWN]),
        ("ImportError: cannot import name 'Gone' from partially initialized module 'lib' (circular)", [OWN]),
        ("ModuleNotFoundError: No module named 'utils.data'", [OWN]),
        ("ModuleNotFoundError: No module named 'other._C.kernel'", [USER]),
        ("ImportError: cannot import name 'Gone' from 'lib'", [f"{SITE}/lib/x.py"]),
        ("KeyError: 'Trainer'", [USER]),
        ("TypeError: forward() got an unexpected keyword argument 'labels'", [OWN, USER]),
        (
            "TypeError: compute_metrics() takes 1 positional argument but 2 were given",
            [OWN, f"{SITE}/other/trainer.py"],
        ),
        (
            "TypeError: tokenize() missing 1 required positional argument: 'rows'",
            [OWN, f"{SITE}/datasets/arrow_dataset.py"],
        ),
    ],
)
def test_what_is_no_conflict(text, files):
    assert find_conflict(raised(text, *files), spans) is None


def test_old_pythons_name_only_init():
    found = read_complaint(
        raised("TypeError: __init__() got an unexpected keyword argument 'x'", OWN, code="t = lib.Trainer(x=1)")
    )
    assert found is not None and (found.owner, found.name) == ("Trainer", "x")


def test_a_version_in_the_log_refutes_a_direction():
    found = find_conflict(raised("ImportError: cannot import name 'Gone' from 'lib'", USER), spans)
    assert found is not None
    assert check_direction(found, "2.3").direction == "new"
    assert check_direction(found, "1.9").direction == ""
    assert check_direction(found, "") == found


# -- with the table of the catalogue ---------------------------------------------------------------------


def diagnosed(last: str, *files: str, before: str = ""):
    frames = "".join(f'  File "{file}", line 3, in f\n    call()\n' for file in files)
    return diagnose_logs([[f"{before}Traceback (most recent call last):\n{frames}{last}\n".encode()]], look=False)


def test_a_name_that_left_is_cured_by_an_older_release_and_never_by_an_upgrade():
    one = diagnosed(
        f"ImportError: cannot import name 'HfFolder' from 'huggingface_hub' ({SITE}/huggingface_hub/__init__.py)",
        OWN, f"{SITE}/gradio/oauth.py",
    )  # fmt: skip
    assert one.confidence >= 0.8
    assert one.conflict["package"] == "huggingface_hub" and one.conflict["other"] == "gradio" and one.conflict["gone"]
    runs = [step.run for step in one.fix if step.run]
    python = SITE.partition("/lib/python")[0] + "/bin/python"
    assert runs[0] == ("uv", "pip", "install", "--python", python, f"huggingface-hub<{one.conflict['gone']}")
    assert not any("--upgrade-package" in run and "huggingface-hub" in run for run in runs)


def test_no_release_is_advised_where_the_direction_is_not_known():
    one = diagnosed(
        "AttributeError: 'LlamaConfig' object has no attribute 'never_heard_of'", OWN, f"{SITE}/lmdeploy/model.py"
    )
    assert (one.cause, one.code) == ("version-conflict", "PKG037")
    assert one.confidence <= 0.6 and not one.fix and any("uv pip list" in note for note in one.notes)
    assert "LlamaConfig.never_heard_of" in one.says


def test_the_version_that_the_log_states_counts():
    text = f"ImportError: cannot import name 'HfFolder' from 'huggingface_hub' ({SITE}/huggingface_hub/__init__.py)"
    assert "gone" not in diagnosed(text, f"{SITE}/gradio/o.py", before="huggingface_hub version: 0.20.1\n").conflict


def test_a_cause_that_calls_a_package_too_old_yields_to_the_table():
    log = (
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/scores/model.py", line 23, in <module>\n    from transformers import AutoModelForVision2Seq\n'
        "ImportError: cannot import name 'AutoModelForVision2Seq' from 'transformers'\n"
    )
    found = diagnose_logs([[log.encode()]])
    assert found.cause == "version-conflict" and "too new" in found.fix[0].does


def test_a_module_that_went_proves_the_conflict():
    text = "ModuleNotFoundError: No module named 'triton.common'"
    for before in ("", "triton==3.1.0\n"):
        found = diagnosed(text, f"{SITE}/unsloth/__init__.py", before=before)
        assert found.confidence >= 0.8 and "too new" in found.fix[0].does


@pytest.mark.parametrize(("module", "cause"), [("somelib", "version-conflict"), ("utils", "")])
def test_a_module_without_an_attribute_and_without_a_stack_is_not_called_the_users_mistake(module, cause):
    found = diagnose_logs([[f"AttributeError: module '{module}' has no attribute 'get_domain'\n".encode()]])
    assert found.cause == cause and found.confidence <= 0.6


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'tokenizer'", "transformers"),
        ("AttributeError: 'GPT2TokenizerFast' object has no attribute 'get_seen_length'", "transformers"),
        ("TypeError: LlamaRotaryEmbedding.forward() got an unexpected keyword argument 'tokenizer'", "transformers"),
    ],
)
def test_a_script_that_uses_a_class_as_another_release_has_it(text, package):
    table = {("parameter", "*(tokenizer"), ("attribute", "*.get_seen_length")}
    conflict = find_conflict(raised(text, OWN), lambda *key: [{"package": "lib"}] if key in table else [])
    assert conflict is not None and (conflict.package, conflict.caller, conflict.direction) == (package, "user", "")
    assert find_conflict(raised(text, OWN), lambda *key: []) is None, "a word that no release has is a slip of the pen"


def test_a_model_or_a_class_of_the_users_own_is_no_conflict():
    for text in (
        "AttributeError: 'LlamaForCausalLM' object has no attribute 'get_seen_length'",
        "TypeError: MyNet.__init__() got an unexpected keyword argument 'tokenizer'",
        "TypeError: LlamaForCausalLM.forward() got an unexpected keyword argument 'tokenizer'",
    ):
        assert find_conflict(raised(text, OWN), lambda *key: [{"package": "lib"}] if "*" in key[1] else []) is None


def test_who_passes_on_what_it_was_given_is_not_the_caller():
    text = "TypeError: Trainer.__init__() got an unexpected keyword argument 'tokenizer'"
    inner = f"{SITE}/lib/api.py"
    assert find_conflict(raised(text, OWN, inner, code="Trainer(**kwargs)"), spans).caller == "user"
    assert find_conflict(raised(text, OWN, inner, code="Trainer(tokenizer=t)"), spans) is None


def test_a_name_that_a_package_did_not_import():
    file = f"{SITE}/unsloth/kernels/loss.py"
    conflict = find_conflict(raised("NameError: name 'Unpack' is not defined", OWN, file), spans)
    assert conflict.captures["imported"] == "unsloth" and conflict.direction == "undefined"
    assert find_conflict(raised("NameError: name 'Unpack' is not defined", OWN), spans) is None


def test_a_class_of_a_saved_object():
    where = f"<module 'transformers.modeling_roberta' from '{SITE}/transformers/modeling_roberta.py'>"
    text = f"AttributeError: Can't get attribute 'RobertaEncoder' on {where}"
    conflict = find_conflict(raised(text, OWN, f"{SITE}/torch/serialization.py"), spans)
    assert (conflict.package, conflict.caller) == ("transformers", "torch")
    assert (
        read_complaint(raised("AttributeError: Can't get attribute 'Net' on <module '__main__' from 'a.py'>")) is None
    )
