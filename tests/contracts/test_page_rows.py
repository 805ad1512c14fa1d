"""Rows of an environment page: the columns of a table, and lines of a block that are no commands."""

from __future__ import annotations

from gpuready.contracts.page import import_page


def test_columns_count_for_sizes_and_drivers_too():
    """A card of 24 GB is enough where 80 GB are recommended; shared memory is not the machine's memory."""
    rows = "| NVIDIA driver | 550.54 | 570.86 |\n| GPU memory | 24 GB | 80 GB |\n| Shared memory | 16 GB | 64 GB |\n"
    page = f"## System Requirements\n\n| Component | Minimum | Recommended |\n|---|---|---|\n{rows}"
    assert [(n.key, n.want, n.level) for n in import_page(page, "readme.md")[0].needs] == [
        ("driver.version", ">=550.54", "required"),
        ("driver.version", ">=570.86", "recommended"),
        ("gpu.memory", ">=24GB", "required"),
        ("gpu.memory", ">=80GB", "recommended"),
        ("system.shm", ">=16GB", "required"),
        ("system.shm", ">=64GB", "recommended"),
    ]


def test_lines_of_a_block_that_are_no_commands_are_needs():
    """As on ROLL's page of its installation: versions below a comment, and the commands after them."""
    block = "# Prerequisites\nCUDA Version >= 12.4\nNVIDIA driver ≥ 550\nPyTorch >= 2.5.1\nvLLM >= 0.7.3\ngit clone https://kite.test/k\n"
    amd = "ROCm Version >= 6.3.4\nPyTorch >= 2.6.0\n"
    contract, unplaced = import_page(
        f"## Installation\n\n```bash\n{block}```\n\nAMD:\n\n```bash\n{amd}```\n", "readme.md"
    )
    assert [(n.key, n.want, n.when) for n in contract.needs] == [
        ("torch.cuda", ">=12.4", ""),
        ("driver.version", ">=550", ""),
        ("package.torch", ">=2.5.1", ""),
        ("package.vllm", ">=0.7.3", ""),
        ("package.torch", ">=2.6.0", "platform=rocm"),
    ]
    assert [step.run[:2] for step in contract.steps if step.run] == [("git", "clone")] and not unplaced
    assert any("ROCm Version >= 6.3.4" in step.note for step in contract.steps)


def test_sections_of_the_first_level_are_sections():
    page = "# Finch\n\nIt trains birds.\n\n# Prerequisites\n\n* Python Version: 3.10\n* CUDA Version: 12.4\n\n# Installation\n\n```\n# first\npip install finch\n```\n"
    contract, _ = import_page(page, "finch.md")
    assert {(need.key, need.want) for need in contract.needs} == {
        ("python.version", ">=3.10"),
        ("torch.cuda", ">=12.4"),
    }
    assert [step.run for step in contract.steps] == [("pip", "install", "finch")], "a comment in code is no section"


def test_two_installs_in_one_line_name_the_framework_and_no_installer():
    page = (
        "# Installing\n\n## Installation\n\n```\npip3 install --upgrade pip setuptools && pip3 install finch_llm\n```\n"
    )
    assert import_page(page, "page.md")[0].framework == "finch-llm"


def test_running_text_that_asks_for_a_version_is_a_need_unless_it_has_a_condition():
    text = "Make sure that you have Python 3.9 or later and PyTorch 2.1 or newer. If you have CUDA 12.8 or later, use the nightly."
    contract, _ = import_page(f"# Finch\n\n## Setup\n\n{text}\n", "finch.md")
    assert [(need.key, need.want) for need in contract.needs] == [
        ("python.version", ">=3.9"),
        ("package.torch", ">=2.1"),
    ]
