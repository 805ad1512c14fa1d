"""Tokens of more makers, and secrets in the forms in which configurations, scripts and commands have them."""

from __future__ import annotations

import json
import string

import pytest

from gpuready.system import redact_text
from gpuready.system.redaction.lines import redact_lines
from gpuready.system.redaction.text import may_contain_secret, redact_json, redact_value
from tests.every import every
from tests.secrets.seeded import ALNUM, HEX, WORD, Mint

BASE = ALNUM + "+/"
SHAPES = {
    "hub, gitlab and github": (
        ("hf_", 34, ALNUM), ("gho_", 36, ALNUM), ("ghs_", 36, ALNUM), ("glpat-", 20, WORD), ("gloas-", 64, HEX), ("glsoat-", 20, WORD),
    ),
    "makers of models": (
        ("sk-ant-api03-", 95, WORD), ("sk-proj-", 74, WORD), ("sk-or-v1-", 64, HEX), ("sk-", 32, HEX), ("sk_", 48, HEX), ("gsk_", 52, ALNUM),
        ("xai-", 80, ALNUM), ("nvapi-", 64, WORD), ("csk-", 48, ALNUM), ("pplx-", 48, ALNUM), ("tgp_v1_", 43, WORD), ("r8_", 37, ALNUM),
        ("fw_", 24, ALNUM), ("jina_", 60, ALNUM), ("pcsk_", 70, ALNUM), ("ABSKQmVkcm9ja0FQSUtleS1", 100, BASE), ("AIza", 35, WORD), ("tvly-", 32, ALNUM),
    ),
    "GPUs by the hour": (
        ("rpa_", 44, ALNUM), ("ak-", 22, ALNUM), ("as-", 22, ALNUM), ("dapi", 32, HEX), ("esecret_", 40, ALNUM), ("dop_v1_", 64, HEX),
        ("secret_node_" + "ab01" * 8 + ".", 32, ALNUM), ("fm2_lJPECAAAAAAAB", 60, BASE), ("KGAT_", 32, HEX),
    ),
    "clouds": (
        ("AKIA", 16, string.ascii_uppercase + "234567"), ("ASIA", 16, string.ascii_uppercase + "234567"), ("LTAI5t", 18, ALNUM), ("AKID", 32, ALNUM),
        ("ya29.", 80, WORD), ("GOCSPX-", 28, WORD), ("hvs.", 24, ALNUM), ("dose", 32, HEX),
    ),
    "services": (
        ("xoxb-1234567890-", 24, ALNUM), ("xoxc-1234567890-", 24, ALNUM), ("xapp-1-A0-", 24, ALNUM), ("npm_", 36, ALNUM), ("dckr_pat_", 27, WORD),
        ("pypi-AgEIcHlwaS5vcmc", 60, WORD), ("wandb_v1_", 77, WORD), ("lsv2_pt_", 43, HEX), ("123456789:AAH", 32, WORD), ("sntrys_eyJpYXQiOjE3", 60, BASE),
        ("ntn_", 46, ALNUM), ("nfp_", 36, ALNUM), ("pscale_tkn_", 43, WORD), ("HRKU-AA", 58, WORD), ("AKCp", 69, ALNUM), ("ops_eyJ", 90, WORD), ("eyJhdXRocyI6eyJyZWdpc3Ry", 60, ALNUM),
        ("CCIPAT_ULUhR6rJLxYbyzyrP19iMZ_", 40, HEX), ("CCIPRJ_ULUhR6rJLxYbyzyrP19iMZ_", 40, HEX), ("bkua_", 40, HEX), ("bkaj_", 40, ALNUM), ("squ_", 40, HEX), ("sqp_", 40, HEX),
        ("sq0csp-", 43, WORD), ("e2b_", 40, HEX), ("patAbC123xyzQ4567.", 64, HEX), ("cmVmdGtuOjAx", 52, ALNUM), ("key-", 32, HEX), ("SK1", 31, HEX), ("SKe", 31, HEX),
        ("pul-", 40, HEX), ("v1.0-" + "ab01" * 6 + "-", 146, HEX),
    ),
}  # fmt: skip

WRITTEN = {
    "npmrc": "//registry.example.org/:_authToken={}",
    "npmrc, old": "//registry.example.org/:_password=\"{}\"",
    "pip.conf": "extra-index-url = https://svc:{}@pip.example.org/simple",
    "requirements": "--extra-index-url https://svc:{}@pip.example.org/simple\ntorch==2.8",
    "uv.toml": "[[index]]\nurl = \"https://svc:{}@pip.example.org/simple\"",
    "netrc without a login": "machine api.wandb.ai\n  password {}",
    "a command that failed": "Command '['hf', 'auth', 'login', '--token', '{}']' returned non-zero exit status 1.",
    "a command in JSON": "[\"hf\", \"upload\", \"--token\", \"{}\", \"x\"]",
    "headers as pairs": "[('Accept', '*/*'), ('Authorization', 'Basic {}')]",
    "a header as bytes": "(b'authorization', b'Bearer {}')",
    "a table of bytes": "{{b'api_key': b'{}'}}",
    "Kubernetes": "- name: HF_TOKEN\n  value: {}\n- name: B",
    "Kubernetes, quoted": "- name: HF_TOKEN\n  value: \"{}\"\n",
    "Kubernetes in JSON": "{{\"name\": \"HF_TOKEN\", \"value\": \"{}\"}}",
    "Kubernetes in JSON in JSON": "{{\\\"name\\\": \\\"HF_TOKEN\\\", \\\"value\\\": \\\"{}\\\"}}",
    "wandb.login": "wandb.login(key=\"{}\")",
    "an API key after a blank": "wandb: ERROR api_key {} was refused",
    "conda": "https://conda.example.org/t/{}/channel/linux-64",
    "etcdctl": "etcdctl --user root:{} get x",
    "rclone": "rclone sync a b --pass {}",
    "kubectl, a short name": "kubectl create secret generic x --from-literal=pw={}",
    "mysql": "mysqldump -u root -p{} db",
    "ldapsearch": "ldapsearch -D cn=admin -w {} -b dc=x",
    "openssl": "openssl rsa -passin pass:{} -in k",
    "sudo": "echo {} | sudo -S ls",
    "argparse": "Namespace(lr=0.1, hub_token='{}', seed=1)",
    "CloudFront": "https://d1.cloudfront.net/x?Expires=1&Signature={}&Key-Pair-Id=K1",
    "Jupyter": "http://127.0.0.1:8888/lab?token={}",
    "docker config": "{{\"auths\": {{\"ghcr.io\": {{\"identitytoken\": \"{}\"}}}}}}",
    "Sentry": "https://{}@o1.ingest.sentry.io/4",
    "a database in words": "host=db user=app password={} dbname=x",
    "ODBC": "Driver=x;Server=s;Uid=a;Pwd={};",
    "git-credentials": "https://user:{}@github.com",
    "netrc": "machine api.wandb.ai login user password {}",
    "Dockerfile ENV": "ENV WANDB_API_KEY {}",
    "Dockerfile ENV, many": "ENV A=1 MLFLOW_TRACKING_PASSWORD={} B=2",
    "Dockerfile ARG": "ARG PIP_TOKEN={}",
    "Lmod": "setenv COMET_API_KEY {}",
    "Slurm": "#SBATCH --export=ALL,WANDB_API_KEY={}",
    "env": "HOME=/home/me\nMISTRAL_API_KEY={}\nSHELL=/bin/sh",
    "export": "export CO_API_KEY='{}'",
    "curl": "curl -u svc:{} https://api.example.org/v1",
    "curl, long": "curl --user svc:{} https://api.example.org/v1",
    "aws": "aws configure set aws_secret_access_key {}",
    "aws profile": "aws_session_token={}",
    "kubectl": "kubectl create secret generic hub --from-literal=token={}",
    "docker run": "docker run -e HF_TOKEN={} --gpus all image",
    "docker login": "docker login -u me -p {} registry.example.org",
    "header": "x-api-key: {}",
    "header, quoted": "curl -H 'Authorization: Bearer {}' https://example.org",
    "vault": "X-Vault-Token: {}",
    "git": "git -c http.extraheader=\"Authorization: Basic {}\" fetch",
    "cookie": "Set-Cookie: session={}; Path=/; HttpOnly",
    "DSN": "SENTRY_DSN=https://{}@o1.ingest.example.org/2",
    "telegram": "https://api.telegram.org/bot123456789:{}/sendMessage",
    "discord": "https://discord.com/api/webhooks/123456789012345678/{}",
    "azure": "AccountKey={};EndpointSuffix=core.windows.net",
    "SAS": "https://a.blob.core.windows.net/c?sv=2024&sig={}",
    "YAML": "wandb:\n  api_key: {}\n  project: x",
    "YAML, quoted": "hub_token: \"{}\"",
    "TOML": "password = \"{}\"",
    "INI": "[client]\nuser=me\npassword={}\n",
    "keyword": "login(token='{}')",
    "keyword, typed": "HfApi(endpoint=None, token=\"{}\")",
    "arguments": "Namespace(lr=1e-05, hub_token='{}', push=True)",
    "option": "python train.py --hub_token {} --lr 1e-5",
    "redis": "redis-cli -a {} ping",
    "query": "GET /api?access_token={}&page=2",
}  # fmt: skip


def _samples() -> list[tuple[str, str]]:
    mint = Mint(11)
    return [(start, mint.mixed(size, letters)) for rows in SHAPES.values() for start, size, letters in rows]


@every(("start", "body"), _samples())
def test_a_token_is_known_by_its_beginning(start, body):
    token = start + body
    forms = (
        f"request with {token} was refused", f"[{token}]", f"key {token}.", f"https://example.org/?q={token}&x=1",
        json.dumps({"text": f"a\n{token}"}), f"\x1b[31m{token}\x1b[0m", f"worker 3: {token}\n",
    )  # fmt: skip
    for form in forms:
        assert body[:14] not in redact_text(form) and body[-12:] not in redact_text(form), form
    assert body not in redact_value("SOME_NAME", token)
    assert body not in json.dumps(redact_json({"argv": ["serve", token]}))


@pytest.mark.parametrize("start", ["ms-", "sk-lf-", "pat-na1-", "pat-eu1-"])
def test_a_uuid_is_a_secret_behind_the_right_beginning(start):
    token = f"{start}1f0c9a3e-7b52-4d18-a6c4-0e9d8b7a6f51"
    for form in (token, f"with {token} it", json.dumps({"a": token}), f"({token})"):
        assert token[-12:] not in redact_text(form)
    assert redact_text(token.replace(start, "GPU-")) == token.replace(start, "GPU-")


@every("where", WRITTEN)
def test_a_secret_is_known_by_where_it_stands(where):
    mint = Mint(12)
    for body in (mint.mixed(32), mint.mixed(40, HEX), mint.mixed(24)):
        text = WRITTEN[where].format(body)
        for form in (text, f"before\n{text}\nafter", json.dumps({"line": text}), repr(text)):
            assert body not in redact_text(form), form


def test_nor_does_it_pass_line_by_line():
    body = Mint(13).mixed(32)
    for where, text in WRITTEN.items():
        lines = ["before", *text.format(body).split("\n"), "after"]
        assert body not in "\n".join(redact_lines(lines)), where


QUOTED = (
    "--pass 'correct horse {}'", '--pass="correct horse {}"', "--pass='{} horse battery'", "--from-literal=hf='{} battery'",
    '--from-literal=hf="correct {}"', "--from-literal='hf=correct horse {}'", '--from-literal "hf={} battery"', "--from-literal='hf={}'",
    "--from-literal=hf={}",
)  # fmt: skip


@pytest.mark.parametrize("form", QUOTED)
def test_a_value_in_quotes_is_hidden_with_its_blanks_even_at_the_start_of_a_text(form):
    text = form.format("staple22")
    for whole in (text, f"rclone {text} --verbose", json.dumps({"line": text}), repr(text)):
        shown = redact_text(whole)
        assert not any(word in shown for word in ("staple22", "correct", "horse", "battery")), shown
    assert redact_text(f"{text} --verbose").endswith(" --verbose")
    assert json.loads(redact_text(json.dumps({"line": text})))["line"] == redact_text(text)


def test_a_password_with_blanks_is_hidden_in_the_words_of_a_command():
    command = ["rclone", "--pass", "correct horse", "-v"]
    assert redact_json(command) == ["rclone", "--pass", "[redacted]", "-v"] and may_contain_secret({"argv": command})
    for plain in (["make", "--passes", "two of them"], ["pass", "all three checks"], ["all three checks", "pass"]):
        assert redact_json(plain) == plain and not may_contain_secret(plain)


HARMLESS = (
    "--pass '3' --passthrough 'some long value'", "kubectl create configmap x --from-literal=replicas='3'",
    "ms-marco-MiniLM-L-6-v2-finetuned", "jina_embeddings_v3_base_model", "fw_version_2_8_0_cu128_linux", "as-is, without any warranty",
    "ak-configuration-of-the-machine", "secret_sharing_protocol_v2", "sk_learn_pipeline_version", "ENV PATH /opt/venv/bin:/usr/bin",
    "ENV TOKENIZERS_PARALLELISM false", "ENV TOKEN_FILE /run/secrets/hub", "setenv LD_LIBRARY_PATH /usr/lib", "curl -u https://example.org", "curl http://my-ubuntu:8000/v1/models", "curl -s --unix-socket /run/x a:bcde",
    "['token', 'secret', 'password', 'key']", "('password', 'username')", "docker run --user 1000:1000 image", "mysql -u root -p db",
    "https://discuss.example.org/t/cuda-out-of-memory-when-training/1234", "echo done | sudo tee /etc/x", "- name: HF_TOKEN\n  value: $HF_TOKEN",
    "- name: HF_TOKEN\n  valueFrom:\n    secretKeyRef:\n      name: hub", "api_key authentication-required-for-this-endpoint", "test pass: 5 of 10",
    "10:AAAAAAAAAAAAAAAAAAAAAAAA", "LTAI is a prefix", "the env key is missing here", "redis-cli -a", "csk-parallel-for-loops-v2-kernel",
)  # fmt: skip


@every("text", HARMLESS)
def test_what_only_begins_so_stays(text):
    assert redact_text(text) == text
