"""Secrets do not pass, and nothing else is touched."""

from __future__ import annotations

import random
import string
import time

import pytest

from tarmac.system import redact, redact_value
from tarmac.system.redact import redact_all
from tarmac.system.shapes import _TOKENS, PHRASES, WEBHOOKS
from tarmac.system.telling import digest, minted, pathlike, split, telling

A = "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"  # 32 letters and digits, as a machine mints them
HEX = "0123456789abcdef0123456789abcdef01234567"  # 40

# Kind, text, the part of it that must go.
SECRETS = [
    # by shape, wherever they stand
    ("hugging face", f"using hf_{A} now", f"hf_{A}"),
    ("hugging face", "hf_abcdefghijklmnopqrstuvwxyzabcdefgh", "hf_abcdefghijklmnopqrstuvwxyzabcdefgh"),
    ("hugging face organisation", f"api_org_{A}", A),
    ("github classic", f"remote: ghp_{A}abcd", f"ghp_{A}"),
    ("github oauth", f"gho_{A}abcd", A),
    ("github server", f"ghs_{A}abcd", A),
    ("github user", f"x ghu_{A}abcd y", A),
    ("github refresh", f"ghr_{A}abcd", A),
    ("github fine-grained", f"github_pat_11ABCDEFG0{A}_abc{A}", A),
    ("gitlab", f"glpat-{A[:20]}", A[:20]),
    ("gitlab deploy", f"gldt-{A[:20]}", A[:20]),
    ("openai", f"sk-{A}{A[:16]}", A),
    ("openai project", f"key: sk-proj-{A}_x-{A}", A),
    ("anthropic", f"sk-ant-api03-{A}-{A}AA", A),
    ("slack bot", f"xoxb-123456789012-123456789012-{A[:24]}", A[:24]),
    ("slack user", f"xoxp-123456789012-{A[:24]}", A[:24]),
    ("slack app", f"xapp-1-A0123-{A}", A),
    ("aws key id", "id AKIAIOSFODNN7EXAMPLE.", "AKIAIOSFODNN7EXAMPLE"),
    ("aws temporary id", "ASIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE"),
    (
        "aws pair",
        "AKIAIOSFODNN7EXAMPLE:wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    ),
    (
        "aws secret",
        "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "wJalrXUtnFEMI/K7MDENG",
    ),
    ("google api", f"AIza{A}abc", A),
    ("google access", f"ya29.a0{A}", A),
    ("google client", f"GOCSPX-{A[:28]}", A[:28]),
    ("google refresh", f"1//0g{A}", A),
    ("npm", f"npm_{A}abcd", A),
    ("pypi", f"pypi-AgEIcHlwaS5vcmcC{A}", A),
    ("docker", f"dckr_pat_{A[:27]}", A[:27]),
    ("digital ocean", f"dop_v1_{HEX}{HEX[:24]}", HEX),
    ("databricks", f"dapi{HEX[:32]}", HEX[:32]),
    ("nvidia", f"nvapi-{A}-{A}", A),
    ("groq", f"gsk_{A}abcdefgh", A),
    ("replicate", f"r8_{A}abcde", A),
    ("langsmith", f"lsv2_pt_{HEX[:32]}_{HEX[:10]}", HEX[:32]),
    ("weights and biases, new", f"wandb_v1_{A}", A),
    ("stripe", f"sk_live_{A[:24]}", A[:24]),
    ("sendgrid", f"SG.{A[:22]}.{A}abc", A),
    ("vault", f"hvs.{A[:24]}", A[:24]),
    ("doppler", f"dp.pt.{A}", A),
    ("grafana", f"glsa_{A}_1a2b3c4d", A),
    ("terraform", f"a.atlasv1.{A}{A}", A),
    ("tailscale", f"tskey-auth-{A[:12]}-{A}", A),
    ("atlassian", f"ATATT3xFfGF0{A}={HEX[:8]}", A),
    ("shopify", f"shpat_{HEX[:32]}", HEX[:32]),
    ("age", "AGE-SECRET-KEY-1QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    ("jwt", f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{A}", A),
    (
        "jwt in text",
        f"cookie was eyJhbGciOiJSUzI1NiIsImtpZCI6.eyJpc3MiOiJrdWJlcm5ldGVz.{A} here",
        "eyJpc3MiOiJrdWJlcm5ldGVz",
    ),
    # URLs
    ("url password", "https://me:hunter2@pypi.example.org/simple", "hunter2"),
    ("url password with an at sign", "https://me:hun@ter2@host/simple", "hun@ter2"),
    ("url password with a slash", "postgres://me:hun/ter2@db:5432/x", "hun/ter2"),
    ("url token as the user", f"https://{A}@github.com/a/b.git", A),
    ("url token as the user with a word", f"https://{A}:x-oauth-basic@github.com/a/b", A),
    ("database", "postgresql+psycopg2://app:s3cr3t@db.internal:5432/prod", "s3cr3t"),
    ("redis", "redis://:s3cr3tpass@10.0.0.1:6379/0", "s3cr3tpass"),
    ("mongo", "mongodb+srv://root:t0psecret@cluster0.example.net", "t0psecret"),
    ("proxy", "http_proxy=http://corp\\user:P4ss@proxy:3128", "P4ss"),
    ("url encoded", "proxy=http%3A%2F%2Fme%3Ahunter2%40host", "hunter2"),
    ("query token", f"https://x.org/a?access_token={A}&b=1", A),
    ("query signature", f"https://x.blob.core.windows.net/c?sv=2020&sig={A}%3D&se=1", A),
    (
        "aws signed url",
        f"https://s3/x?X-Amz-Credential=AKIAIOSFODNN7EXAMPLE&X-Amz-Signature={HEX}{HEX[:24]}",
        HEX,
    ),
    ("query key", f"https://maps.example.org/api?key={A}", A),
    ("slack webhook", f"https://hooks.slack.com/services/T00000000/B00000000/{A[:24]}", A[:24]),
    ("discord webhook", f"https://discord.com/api/webhooks/123456789012345678/{A}", A),
    (
        "feishu webhook",
        "https://open.feishu.cn/open-apis/bot/v2/hook/1a2b3c4d-1111-2222-3333-444455556666",
        "1a2b3c4d-1111-2222-3333",
    ),
    ("telegram", f"https://api.telegram.org/bot123456789:{A}/getMe", A),
    # headers, command lines, files
    ("bearer", f"Authorization: Bearer {A}", A),
    ("basic", "Authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
    ("proxy authorization", "proxy-authorization: Basic dXNlcjpwYXNzd29yZA==", "dXNlcjpwYXNzd29yZA"),
    ("header in a command", f'curl -H "Authorization: token {A}" https://x.org', A),
    ("bearer alone", f"sent bearer {A} to it", A),
    ("api key header", f"X-Api-Key: {A}", A),
    ("private token header", f"PRIVATE-TOKEN: {A}", A),
    ("cookie", "Cookie: sessionid=abc123def456; csrftoken=zyx987wvu654", "zyx987wvu654"),
    ("set-cookie", "set-cookie: sid=s%3Aabcdef123456.xyz; Path=/", "abcdef123456"),
    ("option", "prog --password hunter2 --verbose", "hunter2"),
    ("option with equals", "prog --api-key=abc123def456 x", "abc123def456"),
    ("option token", f"huggingface-cli login --token {A}", A),
    ("docker login", "docker login -u me -p hunter2 registry.example.org", "hunter2"),
    ("wandb login", f"wandb login {HEX}", HEX),
    ("sshpass", "sshpass -p hunter2 ssh me@host", "hunter2"),
    ("netrc", "machine api.wandb.ai\n  login user\n  password hunter2hunter2\n", "hunter2hunter2"),
    ("netrc on a line", "machine github.com login me password gh-s3cret", "gh-s3cret"),
    ("pem", f"-----BEGIN RSA PRIVATE KEY-----\n{A}\n{A}\n-----END RSA PRIVATE KEY-----\n", A),
    ("pem, openssh", f"-----BEGIN OPENSSH PRIVATE KEY-----\n{A}\n", A),
    ("pgp", f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n{A}\n-----END PGP PRIVATE KEY BLOCK-----", A),
    ("pem in json", f'"private_key": "-----BEGIN PRIVATE KEY-----\\n{A}\\n-----END PRIVATE KEY-----\\n"', A),
    (
        "azure storage",
        f"DefaultEndpointsProtocol=https;AccountName=x;AccountKey={A}{A}==;EndpointSuffix=x",
        A,
    ),
    ("azure bus", f"Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={A}abcdefg=", A),
    ("odbc", "Server=db;Uid=sa;Pwd=hunter2x;Encrypt=yes", "hunter2x"),
    ("json", '{"password": "correct horse battery staple", "x": 1}', "correct horse battery staple"),
    ("json, escaped", r"{\"client_secret\": \"s3cr3t-value\"}", "s3cr3t-value"),
    ("python", "connect(user='me', password='hunter2')", "hunter2"),
    ("yaml", f"token: {A}", A),
    ("toml", 'secret_key = "abc123"', "abc123"),
    ("dotenv", "export DJANGO_SECRET_KEY=abc$def#ghi", "abc$def#ghi"),
    ("ini with odd signs", "password=p@ss,w0rd;x!", "p@ss,w0rd;x!"),
    ("kube config", f"    client-key-data: {A}{A}{A}", A),
    ("xml", "<password>hunter2</password>", "hunter2"),
    ("maven", "<proxy><privateKey>s3cr3tkey9</privateKey></proxy>", "s3cr3tkey9"),
    ("camel case", '"accessToken": "abc123def"', "abc123def"),
    ("glued", "dbpassword=hunter2", "hunter2"),
    ("traceback", f"ValueError: bad header b'Bearer {A}'", A),
    ("slurm", f"SLURM_JWT=eyJhbGciOiJIUzI1NiJ9.eyJleHAiOjE3.{A}", A),
    ("long", "token=" + "x9" * 5000, "x9x9"),
]

# Name and value of a variable; the value goes whole.
NAMED = [
    ("HF_TOKEN", "anything"),
    ("HUGGING_FACE_HUB_TOKEN", "x" * 37),
    ("WANDB_API_KEY", HEX),
    ("OPENAI_API_KEY", "plain"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SECRET_ACCESS_KEY", "/bPxRfiCYEXAMPLEKEYwJalrXUtnFEMI12345678"),
    ("AWS_SESSION_TOKEN", "IQoJb3JpZ2luX2VjE"),
    ("POSTGRES_PASSWORD", "1234"),
    ("MYSQL_PWD", "abc"),
    ("DB_PASS", "abc"),
    ("RAY_REDIS_PASSWORD", "5241590000000000"),
    ("SMTP_PASSWD", "a b"),
    ("GPG_PASSPHRASE", "open sesame"),
    ("CLIENT_SECRET", "abc"),
    ("AZURE_CLIENT_SECRET", "a~b"),
    ("MLFLOW_TRACKING_TOKEN", "abc"),
    ("GITHUB_PAT", A),
    ("DOCKER_AUTH", "dXNlcjpwYXNzd29yZA=="),
    ("SESSION_COOKIE", "abc=def"),
    ("AUTHORIZATION", "Basic xyz"),
    ("ENCRYPTION_KEY", "abc"),
    ("COMET_KEY", A),
    ("PRIVATE_KEY", "abc"),
    ("SLURM_JWT", "abc"),
    ("credentials", "me:abc"),
    ("apiKey", "abc"),
    ("x-api-key", "abc"),
    ("NGC_API_KEY", "nothing-like-it"),
]

HARMLESS = [
    # identities, digests, versions, paths
    "GPU-1a2b3c4d-1111-2222-3333-444455556666",
    "MIG-1a2b3c4d-1111-2222-3333-444455556666",
    f"commit {HEX}",
    f"git+https://github.com/huggingface/transformers@{HEX}",
    f"sha256:{HEX}{HEX[:24]}",
    f"--hash=sha256:{HEX}{HEX[:24]}",
    f"digest = {HEX}{HEX[:24]}",
    f"build id {HEX}",
    "torch==2.9.1+cu128",
    "nvidia-cublas-cu12==12.8.4.1",
    "torch-2.9.1+cu128-cp312-cp312-manylinux_2_28_x86_64.whl",
    "Cuda compilation tools, release 12.8, V12.8.93",
    "Build cuda_12.8.r12.8/compiler.35583870_0",
    "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",
    "/home/me/.cache/huggingface/hub/models--meta-llama--Llama-3.1-8B/snapshots/0e9e39f249a16976918f6564b8830bc894c89659",
    "/home/me/.cache/huggingface/token",
    "Linux gpu-07 6.8.0-45-generic #45~22.04.1-Ubuntu SMP PREEMPT_DYNAMIC x86_64",
    "00000000:1B:00.0",
    "pypi-attestations-0.0.11-py3-none-any.whl",
    "sk-learn-intelex-2024-extra-long-name",
    "hf_transfer hf_xet hf_hub_download",
    "hf_transformerslike",
    # URLs without a secret
    "https://download.pytorch.org/whl/cu128",
    "ssh://git@github.com/org/repo.git",
    "git+ssh://git@github.com:org/repo.git@v1.0",
    "tcp://10.0.0.1:29500",
    "http://proxy.example.org:3128/path@2x.png",
    "docker://nvcr.io:5000/nvidia/pytorch@sha256:0123456789abcdef",
    "https://huggingface.co/docs/tokenizers?key=1",
    "https://user@host/path",
    # language models have tokens of another kind
    "max_tokens=4096",
    "max_new_tokens: 512",
    'pad_token="<|endoftext|>"',
    '"eos_token": "</s>", "bos_token": "<s>"',
    '"cls_token": "[CLS]"',
    '{"token_type_ids": [0, 0, 1]}',
    '"tokenizer_class": "LlamaTokenizerFast"',
    "tokens per second: 123456.789",
    "num_tokens=123456789",
    "TOKENIZERS_PARALLELISM=false",
    "--max-tokens 8192 --tokenizer gpt2",
    "unexpected token: indent",
    '"token_type": "bearer"',
    # words that only look like it
    "KeyError: 'model.layers.0.self_attn.q_proj.weight'",
    "key=value",
    "keys: 128 matched",
    "primary_key=abc123def456ghi789",
    f"cache_key={HEX}",
    "public_key: ssh-ed25519",
    "KEYBOARD=us1234567890abcdef",
    "author: Jane Doe <jane@example.org>",
    "GIT_AUTHOR_NAME=Jane",
    "authors=12345678abcdefgh",
    "12 passed, 3 failed",
    "bypass=abc123def456ghi789",
    "compass: north123456789abc",
    "password: required",
    "the password is wrong",
    "enter the token of your account",
    "token=None, password=None",
    "password=$DB_PASSWORD token=${HF_TOKEN}",
    "--token TEXT  the token to use",
    "secretary: alice",
    "session: started",
    "basic authentication is not supported",
    "bearer authentication",
    "login failed for user root",
    "NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5_0:1",
    "SSH_AUTH_SOCK=/tmp/ssh-XXXXabcdEFGH/agent.1234",
    "Authorization: required",
    "-----BEGIN CERTIFICATE-----\nMIIDdzCCAl+gAwIBAgIEAgAAuTANBgkqhkiG9w0BAQ\n-----END CERTIFICATE-----",
    "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQC7 me@host",
    "import secrets; secrets.token_hex(16)",
    "for key, value in items.items(): print(key)",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "",
    "x",
]

HARMLESS_NAMED = [
    ("PATH", "/usr/local/cuda/bin:/usr/bin"),
    ("TOKENIZERS_PARALLELISM", "false"),
    ("MAX_TOKENS", "4096"),
    ("HF_TOKEN_PATH", "/home/me/.cache/huggingface/token"),
    ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1"),
    ("SSH_AUTH_SOCK", "/run/user/1000/keyring/ssh"),
    ("XAUTHORITY", "/run/user/1000/gdm/Xauthority"),
    ("XDG_SESSION_ID", "c2"),
    ("XDG_SESSION_TYPE", "wayland"),
    ("DESKTOP_SESSION", "ubuntu-wayland-session"),
    ("DBUS_SESSION_BUS_ADDRESS", "unix:path=/run/user/1000/bus"),
    ("SESSION_MANAGER", "local/host:@/tmp/.ICE-unix/1234,unix/host:/tmp/.ICE-unix/1234"),
    ("TERM_SESSION_ID", "1A2B3C4D-1111-2222-3333-444455556666"),
    ("GOOGLE_APPLICATION_CREDENTIALS", "/secrets/gcp/key.json"),
    ("AWS_SHARED_CREDENTIALS_FILE", "/home/me/.aws/credentials"),
    ("SSL_KEY_FILE", "/etc/ssl/private/host.key"),
    ("TLS_PRIVATE_KEY", "/etc/ssl/private/host.key"),
    ("KEYBOARD", "us"),
    ("PWD", "/home/me/project"),
    ("OLDPWD", "/home/me"),
    ("CACHE_KEY", HEX),
    ("SORT_KEY", "abc123def456ghi789jkl"),
    ("AUTH_TYPE", "kerberos"),
    ("TOKEN_URL", "https://auth.example.org/token"),
    ("PASSWORD_STORE_DIR", "/home/me/.password-store"),
    ("GIT_AUTHOR_EMAIL", "jane@example.org"),
    ("HF_TOKEN", ""),
    ("DB_PASSWORD", "${DB_PASSWORD}"),
    ("NCCL_DEBUG", "INFO"),
    ("CUDA_VISIBLE_DEVICES", "GPU-1a2b3c4d-1111-2222-3333-444455556666"),
    ("LS_COLORS", "rs=0:di=01;34:ln=01;36"),
    ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
    ("COMPAT", "aB3dE5fG7hJ9kL1mN2pQ"),
    ("USE_AUTH", "true"),
    ("MONKEY", "aB3dE5fG7hJ9kL1mN2pQ4rS6tU8v"),
]


def test_the_tables_are_large_enough():
    assert len(SECRETS) >= 60
    assert len({kind for kind, _, _ in SECRETS}) >= 30
    assert len(HARMLESS) >= 60


@pytest.mark.parametrize(
    ("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)]
)
def test_a_secret_does_not_pass(kind, text, secret):
    shown = redact(text)
    assert secret not in shown
    assert "[redacted]" in shown
    for size in (6, 10):  # nor does a part of it
        pieces = {secret[i : i + size] for i in range(0, max(len(secret) - size, 1), size)}
        assert not any(piece in shown for piece in pieces if len(piece) == size)


@pytest.mark.parametrize(
    ("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)]
)
def test_nor_in_the_midst_of_other_text(kind, text, secret):
    shown = redact(f"2026-01-01 12:00:00 worker 3 said\n{text}\nand went on: 12 tokens/s\n")
    assert secret not in shown
    assert shown.startswith("2026-01-01 12:00:00 worker 3 said\n")
    if "BEGIN" not in text or "END" in text:
        assert shown.endswith("\nand went on: 12 tokens/s\n")


@pytest.mark.parametrize(
    ("kind", "text", "secret"), SECRETS, ids=[f"{i}-{s[0]}" for i, s in enumerate(SECRETS)]
)
def test_what_is_redacted_stays_as_it_is(kind, text, secret):
    once = redact(text)
    assert redact(once) == once


@pytest.mark.parametrize("text", HARMLESS)
def test_what_is_no_secret_is_not_touched(text):
    assert redact(text) == text
    around = f"before\n{text}\nafter"
    assert redact(around) == around


@pytest.mark.parametrize(("name", "value"), NAMED)
def test_a_variable_with_a_telling_name(name, value):
    assert redact_value(name, value) == "[redacted]"
    assert redact_all({"env": {name: value}}) == {"env": {name: "[redacted]"}}


@pytest.mark.parametrize(("name", "value"), HARMLESS_NAMED)
def test_a_variable_without_one(name, value):
    assert redact_value(name, value) == value


# -- what stays


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://me:pw@host:8080/a?b=c", "https://me:[redacted]@host:8080/a?b=c"),
        (f"https://{A}@github.com/a/b", "https://[redacted]@github.com/a/b"),
        ("HF_TOKEN=abcdefgh CUDA=1", "HF_TOKEN=[redacted] CUDA=1"),
        ('{"api_key": "abcdef", "model": "x"}', '{"api_key": "[redacted]", "model": "x"}'),
        ("Password=abc;Server=db", "Password=[redacted];Server=db"),
        ("f(token='abcdef', n=1)", "f(token='[redacted]', n=1)"),
        (f"Authorization: Bearer {A}", "Authorization: Bearer [redacted]"),
        ("prog --password hunter2 -v", "prog --password [redacted] -v"),
        ("machine h login u password p4ssw0rd", "machine h login u password [redacted]"),
        (
            "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----[redacted]-----END PRIVATE KEY-----",
        ),
        ("https://x/?a=1&access_token=abc123&b=2", "https://x/?a=1&access_token=[redacted]&b=2"),
        (f"https://hooks.slack.com/services/T0/B0/{A}", "https://hooks.slack.com/services/[redacted]"),
        ("<password>abc123</password>", "<password>[redacted]</password>"),
        ("password=a,b, user=me", "password=[redacted], user=me"),
        ("two: https://a:b1@c and https://d:e2@f", "two: https://a:[redacted]@c and https://d:[redacted]@f"),
        ("İ İ İ token=abc123def456 é", "İ İ İ token=[redacted] é"),
    ],
)
def test_what_stands_around_a_secret_stays(text, shown):
    assert redact(text) == shown


def test_a_url_under_a_telling_name_keeps_its_host():
    assert (
        redact_value("SENTRY_DSN", f"https://{HEX[:32]}@sentry.example.org/4")
        == "https://[redacted]@sentry.example.org/4"
    )
    assert redact_value("DATABASE_URL", "postgres://u:p@h/d") == "postgres://u:[redacted]@h/d"
    assert redact_value("PIP_INDEX_URL", "https://u:p@h/simple") == "https://u:[redacted]@h/simple"


def test_plain_data_is_redacted_by_key_and_by_option():
    data = {
        "argv": ["prog", "--token", "abc", "--name", "x", "--password", "-v", "--api-key=abcdef"],
        "env": {"HF_TOKEN": "abc", "N": 1, "OK": None},
        "nested": [{"secret": "abc"}, ["https://u:p@h/"]],
        "rows": ({"pid": 5, "used": True},),
    }
    assert redact_all(data) == {
        "argv": ["prog", "--token", "[redacted]", "--name", "x", "--password", "-v", "--api-key=[redacted]"],
        "env": {"HF_TOKEN": "[redacted]", "N": 1, "OK": None},
        "nested": [{"secret": "[redacted]"}, ["https://u:[redacted]@h/"]],
        "rows": ({"pid": 5, "used": True},),
    }
    assert redact_all({1: "https://u:p@h/"}) == {1: "https://u:[redacted]@h/"}


# -- two hundred at once


def test_two_hundred_seeded_secrets():
    pick = random.Random(7)

    def mint(size):
        return "".join(pick.choice(string.ascii_letters + string.digits) for _ in range(size))

    forms = [
        *(
            lambda s: f"hf_{s}",
            lambda s: f"ghp_{s}",
            lambda s: f"MY_API_TOKEN={s}",
            lambda s: f'"password": "{s}"',
        ),
        *(
            lambda s: f"https://me:{s}@host/x",
            lambda s: f"https://x.org/?token={s}",
            lambda s: f"--secret {s}",
        ),
        *(
            lambda s: f"Authorization: Bearer {s}",
            lambda s: f"machine h login u password {s}",
            lambda s: f"glpat-{s}",
        ),
    ]
    seeds = [mint(pick.randint(34, 48)) for _ in range(200)]
    text = "\n".join(f"line {i}: {forms[i % len(forms)](seed)} end" for i, seed in enumerate(seeds))
    shown = redact(text)
    assert [seed for seed in seeds if seed in shown] == []
    assert shown.count(" end") == 200
    assert redact_value("LOG", text) == shown


# -- the time it takes


def test_ordinary_text_is_cheap():
    text = "\n".join(
        f"processor : {i}\nmodel name : AMD EPYC 9554 64-Core\nMemTotal: 528280000 kB\nshard {i} of 12\n"
        for i in range(200)
    )
    assert redact(text) == text


HINTS = [*_TOKENS, *(h for h, _, _ in (*PHRASES, *WEBHOOKS)), "token", "secret", "pass", "key", "auth", "://"]
HOSTILE = [
    *HINTS,
    *(
        "token=",
        "token=a://",
        "token=/a/",
        'token="',
        "token='\\",
        "--token ",
        "password: ",
        "cookie=",
        "?sig=",
    ),
    *(
        "<password>",
        "://u:p@",
        "://u:p/",
        "://a:b",
        "login a ",
        "eyJaaaaaaaa.",
        "key=;a",
        "password=,a",
        "&key=",
    ),
    *(
        "-----BEGIN PRIVATE KEY-----",
        "-----BEGIN ",
        "a",
        "_",
        "=",
        "@",
        "docker login ",
        "authorization: ",
        "İtoken=",
    ),
    *("://a:" + "b" * 200, "token=" + "/a" * 300, "key " * 3, 'token="' + "\\" * 99, "%3a%2f%2f%3a"),
]


@pytest.mark.parametrize("size", [1 << 15])
def test_no_text_makes_it_slow(size):
    """Twice the text takes about twice the time, whatever the text repeats."""
    slow = []
    for piece in HOSTILE:
        text = (piece * (size // len(piece) + 1))[:size]
        begun = time.perf_counter()
        redact(text)
        seconds = time.perf_counter() - begun
        if seconds > 0.5:  # a tenth of this is usual; a quadratic pattern takes tens of seconds
            slow.append((piece, seconds))
    assert slow == []


# -- the pieces


def test_names_are_split_into_words():
    assert split("HF_TOKEN") == ["hf", "token"]
    assert split("accessToken") == ["access", "token"]
    assert split("x-api-key") == ["x", "api", "key"]
    assert split("spring.datasource.password") == ["spring", "datasource", "password"]
    assert split("--") == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("password", "password"),
        ("HF_TOKEN", "strong"),
        ("pad_token", ""),
        ("token_type", ""),
        ("Authorization", "header"),
        ("some_key", "weak"),
        ("key", ""),
        ("aws_access_key_id", "strong"),
        ("session_id", "weak"),
        ("user_id", ""),
        ("__", ""),
        ("_auth", "weak"),
        ("keys", ""),
    ],
)
def test_how_telling_a_name_is(name, kind):
    assert telling(name) == kind


def test_what_looks_minted():
    assert minted("abc12345") and minted("AbcdefGhijkl") and minted("x" * 24)
    assert not minted("abc") and not minted("required") and not minted("Kerberos")


def test_what_is_a_digest_or_a_path():
    assert digest(HEX) and digest("1a2b3c4d-1111-2222-3333-444455556666") and not digest(A)
    assert (
        pathlike("/etc/ssl/host.key")
        and pathlike("~/x")
        and not pathlike("/bPxRfiCY7EXAMPLEKEY/x")
        and not pathlike("a/b")
    )


def test_what_is_asked_of_all_at_once_is_what_is_found_one_by_one():
    """Every secret of the tables, in every place of a fact, is seen by the one question too."""
    from tarmac.system.redact import harbours

    token = "hf_" + "AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    for place in (
        token,
        ("a", token),
        {"x": [token]},
        {"api_key": "Zx81kPq0vLm3Tn5Rb7Yc9Wd2Ef4Gh6Jk"},
        ["--password", "hunter2hunter2Hunter"],
        {"url": f"https://me:{token}@example.invalid/x"},
        [("k", {"deep": {"token": token}})],
    ):
        assert redact_all(place) != place, place
        assert harbours(place), place
    assert not harbours(
        [("gpu.name", ("NVIDIA H200",), "NVML", "read", ""), {"requires": ["tokenizers>=0.2"]}]
    )
