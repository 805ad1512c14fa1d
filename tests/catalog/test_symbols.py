"""The table of symbols: what is known to have come and gone is there, and it stays small."""

from __future__ import annotations

import gzip
from importlib.resources import files

import pytest

from gpuready.catalog.symbols import find_symbol_spans

FILE = files("gpuready.catalog").joinpath("symbols.txt.gz")
PACKAGES = (
    "torch", "torchvision", "transformers", "accelerate", "peft", "trl", "datasets", "tokenizers", "huggingface_hub",
    "vllm", "triton", "numpy",
)  # fmt: skip


def test_it_is_small_and_says_where_it_is_from():
    data = FILE.read_bytes()
    assert len(data) < 1_000_000
    head = gzip.decompress(data).decode().partition("\n")[0]
    assert "wheels of an index" in head and "as of 20" in head


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_there(package):
    assert find_symbol_spans("package", package)


def test_an_unknown_package_is_not():
    assert not find_symbol_spans("package", "no_such_package")


@pytest.mark.parametrize(
    ("kind", "symbol", "package", "came", "gone"),
    [
        ("parameter", "SFTTrainer(dataset_text_field", "trl", "", "0.13"),
        ("parameter", "Trainer(tokenizer", "transformers", "", "5.0"),
        ("module", "peft.tuners.miss", "peft", "0.17", ""),
        ("name", "peft:BoneConfig", "peft", "0.14", "0.19"),
        ("name", "huggingface_hub:HfFolder", "huggingface_hub", "", "1.0"),
        ("name", "transformers:AutoModelForVision2Seq", "transformers", "", "5.0"),
        ("name", "torch.utils:swap_tensors", "torch", "", ""),
    ],
)
def test_what_is_known_to_have_changed(kind, symbol, package, came, gone):
    found = find_symbol_spans(kind, symbol)
    if not came and not gone:
        assert not found, "what every release has is not in the table"
        return
    assert {"package": package, "symbol": symbol, "came": came, "gone": gone} in found


def test_an_ending_finds_every_owner():
    assert {span["package"] for span in find_symbol_spans("parameter", "*(tokenizer")} >= {"transformers", "trl"}
    assert not find_symbol_spans("parameter", "(tokenizer"), "without a star the whole symbol counts"


def test_a_log_in_lower_case_finds_them_too():
    assert find_symbol_spans("parameter", "sfttrainer(packing")
    assert not find_symbol_spans("parameter", "SFTtrainer(packing")
