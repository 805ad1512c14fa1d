"""Logins without a scheme, keys that only their entropy and a word beside them tell, and the table of forms."""

from __future__ import annotations

import re
import string
import sys
from pathlib import Path

import pytest

from gpuready.system import redact_text
from gpuready.system.redaction import secret_patterns
from gpuready.system.redaction.lines import redact_lines
from gpuready.system.redaction.text import redact_json, redact_value
from tests.secrets.seeded import ALNUM, Mint

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TABLE = tomllib.loads((Path(secret_patterns.__file__).parent / "secrets.toml").read_text(encoding="utf-8"))
ROOT = Path(__file__).parents[1]

LOGINS = (
    "svc:{}@proxy.example.org:3128", "git clone me:{}@git.example.org:team/repo", "proxy=svc:{}@10.0.0.7:8080", "pulled from bot:{}@registry:5000/img",
    'index = "me:{}@pip.example.org/simple"', "connect(me:{}@localhost)", ":{}@cache.example.org:6379", "user.name+tag:{}@db.example.org/x", "to [svc:{}@[::1]:443]",
    "https://me:${}@host/x", "rsync://me:{}@backup/x", "me:a@{}@db.example.org", "//me:{}@host.example.org/x", "müller:{}@höst.example.org", "me:{}@registry/img:latest", "me:{}@gate:/path", "svc:{}@PROXY.EXAMPLE.ORG:80",
)  # fmt: skip
PLAIN = (
    "git@github.com:org/repo.git", "mailto:someone@example.org", "Author:jane.doe@example.org", "maintainer-email:a.b@example.org", "nvcr.io/nvidia/pytorch:25.01-py3@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945",
    "pytorch:2.8@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", "memcpy@@GLIBC_2.14", "libc.so.6:memcpy@GLIBC_2.14", "rank:3@node-07.example.org", "12:30:45@node01",
    "loss:query@key.transpose(-2, -1)", "torch @ file:///tmp/torch.whl", "npm:left-pad@1.3.0", "user@1000.service", "me:${TOKEN}@proxy.example.org:3128", "me:[redacted]@proxy.example.org:3128",
)  # fmt: skip


@pytest.mark.parametrize("form", LOGINS)
def test_a_password_before_an_at_is_hidden_without_a_scheme(form):
    for password in ("hunter2", "Correct-Horse.9", "p%40ss~w0rd"):
        text = form.format(password)
        hidden = redact_text(text)
        assert (
            password not in hidden
            and hidden.count("[redacted]") == 1
            and hidden.rpartition("@")[2] == text.rpartition("@")[2]
        )
        assert redact_text(hidden) == hidden
        assert password not in str(redact_json({"line": [text]})) and password not in redact_lines([f"x {text} y"])[0]


@pytest.mark.parametrize(
    "value",
    [
        "svc:hunter2@db",
        "svc:12345@10.0.0.7:3128",
        "me:sla/sh@ed@proxy:3128",
        "me:$ecret1@proxy.example.org",
        ":t0ken@cache:6379/0",
    ],
)
def test_so_it_is_as_the_value_of_a_variable(value):
    password = value[value.index(":") + 1 : value.rindex("@")]
    for name in ("HTTP_PROXY", "no_such_name", "NCCL_NOTE"):
        assert password not in redact_value(name, value) and redact_value(name, value).endswith(
            value.rpartition("@")[2]
        )


@pytest.mark.parametrize("text", PLAIN)
def test_addresses_of_mail_images_and_symbols_are_no_logins(text):
    assert redact_text(text) == text and redact_value("SOME_IMAGE", text) == text


def test_a_name_that_was_generated_is_hidden_before_an_at():
    name = Mint(5).mixed(24)
    assert (
        name not in redact_text(f"ssh {name}@gate.example.org")
        and name not in redact_text(f"https://{name[:14]}@x.org/a")[0:30]
    )


SAID = (
    "key: {}", "the key for the hub is {}", "key {} was refused", "auth {}", "license key ({})", "{} is not a valid key", "got '{}' as the credential",
    "| hub key | {} |", "key：{}", "the passwd we set yesterday for him was {}", "<key>{}</key>", "session -> {}", "the signing key that was sent: {} (expired)", "Key: {}",
)  # fmt: skip
UNSAID = (
    "cache key: {}", "public key {}", "primary key {}", "object {} was moved", "digest {}", "step {} of the pipeline", "keyboard {}", "monkey {}", "author {}", "the tokenizer of {}",
)  # fmt: skip
ORDINARY = (
    "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d", "4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945", "GPU-8a1f3c52-9be0-4d07-b3a6-10d2c5e7f894", "2.8.0+cu128.post20261118",
    "/opt/venv/lib/python3.11/site-packages/Torch-2.8",  "Qwen3-30B-A3B-Instruct-2507", "nvidia-Llama-3_3-Nemotron-Super-49B-v1_5", "CUBLAS_COMPUTE_32F_FAST_TF32",
    "Sm90TmaGmmaWarpSpecializedCooperative", "libcudnn_engines_precompiled_v9", "NVIDIA-H100-80GB-HBM3-MIG-1g", "fxgraphc3mhw2qkzt5u7yd4",
)  # fmt: skip


@pytest.mark.parametrize("form", SAID)
def test_a_word_of_high_entropy_beside_a_word_that_says_key_is_hidden(form):
    mint = Mint(21)
    for size in (24, 32, 43, 64):
        for letters in (ALNUM, ALNUM + "+/", ALNUM + "_-"):
            word = "aB3" + mint.mixed(size - 6, letters) + "xY7"
            assert word not in redact_text(form.format(word)), form.format(word)


@pytest.mark.parametrize("form", UNSAID)
def test_without_such_a_word_it_stays(form):
    word = "aB3" + Mint(22).mixed(28) + "xY7"
    assert redact_text(form.format(word)) == form.format(word)


@pytest.mark.parametrize("word", ORDINARY)
def test_hashes_versions_paths_and_names_stay_even_beside_the_word(word):
    assert redact_text(f"key {word}") == f"key {word}" and redact_text(f"{word} for this key") == f"{word} for this key"


def test_base64_of_an_arch_list_stays_without_such_a_word():
    for text in ("archs OC4wIDguNiA5LjAgMTAuMCAxMi4w", "TORCH_CUDA_ARCH_LIST (encoded): OC4wIDguNiA5LjAgMTAuMCAxMi4w"):
        assert redact_text(text) == text


def test_the_recorded_machines_and_the_logs_of_the_tests_stay_as_they_are():
    """Ordinary diagnostics: what is hidden in them was hidden when they were recorded, or is a planted secret."""
    lines = [
        line
        for folder in ("machines", "logs/causes")
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in (".json", ".txt", ".log")
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    changed = [line for line in lines if redact_text(line) != line]
    assert len(lines) > 20_000 and len(changed) <= 10, changed


def test_every_form_has_a_source_that_was_read():
    rows = [*TABLE["token"], *TABLE["address"], *TABLE["phrase"]]
    assert len(rows) > 100 and all(len(row["source"]) > 5 and row["confirmed"] is True for row in rows)
    hints = [hint for row in TABLE["token"] for hint in row["hints"]]
    assert len(hints) == len(set(hints))


COMMANDS = (
    "swanlab login -k {}", "docker login -u me -P {} registry.example.org", "nexus login registry.example.org -p {}", "ipmitool -I lanplus -H bmc7 -U admin -P {} power status",
    "sqlcmd -S db -U sa -P{}", "mosquitto_pub -h h -u u -P '{}' -t x", "oc login -u dev -p={}", "cqlsh -u me -p {} db", "lftp -u me,{} ftp.example.org", "mc alias set s3 https://s3.example.org AK {}", "snmpget -v3 -A {} host", "smbclient -U me%{} //h/s",
)  # fmt: skip
NAMES = (
    "pass_phrase={}", "X-JFrog-Art-Api: {}", "passPhrase: '{}'", '"pass-word": "{}"', "X-Acme-Api={}", "ssl_pass_phrase => {}", "Enter pass phrase for /etc/k.pem: {}", "<passPhrase>{}</passPhrase>", "ssl.pass.phrase={}",
)  # fmt: skip


@pytest.mark.parametrize("form", [*COMMANDS, *NAMES])
def test_logins_of_commands_and_names_in_other_spellings(form):
    text = form.format("Tr0ub4dor3x9")
    for whole in (text, f"+ {text}\nnext", repr(text)):
        assert "Tr0ub4dor3x9" not in redact_text(whole), whole


def test_words_about_a_login_stay():
    for text in (
        "on the login node: srun -p gpu2024 x",
        "ssh login -p 2222",
        "curl -k https://login.example.org/x",
        "after login use -p gpu",
        "ipmitool sensor list -v",
    ):
        assert redact_text(text) == text


def test_a_form_in_the_middle_of_a_token_hides_all_of_it():
    mint = Mint(31)
    for token in (mint.mixed(3) + "8Q~" + mint.mixed(34), mint.mixed(76) + "AZDO" + mint.mixed(4)):
        for text in (token, f"with {token} it", f"x={token}&y", f'{{"a": "{token}"}}'):
            assert token[:3] + token[3:9] not in redact_text(text) and token[-8:] not in redact_text(text), text
    assert (
        redact_text("Q~ and AZDO are hints; " + string.ascii_letters * 2)
        == "Q~ and AZDO are hints; " + string.ascii_letters * 2
    )
    assert not re.search(r"%\{", str(secret_patterns._TABLE)), "every piece is expanded"


@pytest.mark.parametrize("unseen", ["\u200b", "\u00ad", "\u2060", "\ufe0f", "\u3164", "\U000e0041", "\u180e\u034f"])
def test_a_token_in_pieces_that_nobody_sees_is_hidden(unseen: str):
    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz01234567"
    broken = f"login with {token[:9]}{unseen}{token[9:]} failed"
    assert "KlMn" not in redact_text(broken) and "login with" in redact_text(broken)
    assert redact_text(f"plain{unseen} words") == f"plain{unseen} words"


def test_a_name_in_another_language_tells_nothing():
    """As SECURITY.md says."""
    assert redact_text("Kennwort=S3cr3tPassw0rdXyz") == "Kennwort=S3cr3tPassw0rdXyz"
