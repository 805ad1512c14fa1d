"""Arguments of the user's script: its tokens are passed on, and never shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.system.redaction.text import redact_json
from tests.running import gpuready

SECRETS = {
    "--hf-token": "hunter-two-and-three",
    "--api_key": "abcDEF0123456789ghi",
    "--db-pw": "xK9v-QmTr28Lz",
    "--tracker": "https://me:s3cretpass@tracker.example/run",
}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("job") / "train.py"
    path.write_text("import sys\nopen('seen', 'w').write(' '.join(sys.argv[1:]))\n")
    return path


def words(script: Path) -> list[str]:
    return [
        "--engine",
        "local",
        "--nproc",
        "1",
        "--",
        str(script),
        "--lr",
        "1e-4",
        *(w for pair in SECRETS.items() for w in pair),
    ]


def assert_hidden(text: str) -> None:
    assert not [secret for secret in (*SECRETS.values(), "s3cretpass") if secret in text]
    assert "1e-4" in text and "train.py" in text and "--hf-token" in text


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_dry_run_shows_no_token(script: Path, form: list[str]):
    ran = gpuready("run", "--dry-run", "--no-preflight", *form, *words(script), cwd=script.parent)
    assert ran.code == 0, ran.err
    assert_hidden(ran.out)


def test_a_run_passes_them_on_and_shows_none(script: Path):
    ran = gpuready("run", "--json", "--no-preflight", *words(script), cwd=script.parent)
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["job"]["words"][1:4] == ["--lr", "1e-4", "--hf-token"]
    assert_hidden(ran.out + ran.err)
    assert all(secret in (script.parent / "seen").read_text() for secret in SECRETS.values())


@pytest.mark.parametrize(
    "words",
    [
        ["--password=correct horse battery"],
        ["--pass=correct horse battery"],
        ["--pass", "correct horse battery"],
        ["--token=correct horse battery"],
        ["kubectl", "--from-literal", "API=correct horse battery"],
        ["kubectl", "--from-literal=API=correct horse battery"],
    ],
)
def test_a_secret_with_blanks_is_hidden_whole_in_a_list_of_words(words):
    hidden = " ".join(redact_json(words))
    assert "horse" not in hidden and "battery" not in hidden and words[0].partition("=")[0] in hidden


def test_words_with_blanks_that_are_no_secret_stay():
    words = ["--message=two more words", "--title", "two words", "a b=c d"]
    assert redact_json(words) == words
