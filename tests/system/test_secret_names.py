"""Names that tell of a secret: its value goes whole. Names that only look like it: theirs stays."""

from __future__ import annotations

import pytest

from gpuready.system import redact_value
from gpuready.system.redaction.secret_names import is_digest, is_plain_path, looks_generated, secret_kind, split_name
from gpuready.system.redaction.text import redact_json, redact_text
from tests.every import every
from tests.system.redact_texts import HEX, A

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

TELLING = ("DB_PW", "GH_PAT", "gitlab-pat", "MY_JWT", "SENTRY_DSN", "WALLET_MNEMONIC", "VPN_OTP", "TOTP", "jwt", "dsn")


@pytest.mark.parametrize("name", TELLING)
@pytest.mark.parametrize(
    "form",
    ["export {0}={1}", "{0}: {1}", '{{"{0}": "{1}"}}', "app --{0} {1} x", "app --{0}={1}", "os.environ['{0}'] = '{1}'"],
)
def test_names_that_tell_hide_in_text_as_in_variables(name, form):
    value = "xK9v-QmTr28Lz"
    assert redact_value(name, value) == "[redacted]"
    shown = redact_text(form.format(name, value))
    assert value not in shown and name in shown


@pytest.mark.parametrize(
    "text",
    [
        "file_pat=model-0001-of-0004.safetensors",
        "--exclude-pat layer12weights00a",
        "LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64",
        "memory_footprint=123456789ab",
        "forward-compat: cuda-compat-12-4",
        "hotplug=enabled12345",
        "cache_path: run0123456789ab",
        "ERLANG_OTP=26",
        "kernel_pw",
        "OTP_VERSION=26.2.5.11",
    ],
)
def test_endings_that_tell_nothing(text):
    assert redact_text(text) == text


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


@every(("name", "value"), NAMED)
def test_a_variable_with_a_telling_name(name, value):
    assert redact_value(name, value) == "[redacted]"
    assert redact_json({"env": {name: value}}) == {"env": {name: "[redacted]"}}


@every(("name", "value"), HARMLESS_NAMED)
def test_a_variable_without_one(name, value):
    assert redact_value(name, value) == value


def test_a_url_under_a_telling_name_keeps_its_host():
    assert (
        redact_value("SENTRY_DSN", f"https://{HEX[:32]}@sentry.example.org/4")
        == "https://[redacted]@sentry.example.org/4"
    )
    assert redact_value("DATABASE_URL", "postgres://u:p@h/d") == "postgres://u:[redacted]@h/d"
    assert redact_value("PIP_INDEX_URL", "https://u:p@h/simple") == "https://u:[redacted]@h/simple"


# -- the pieces


def test_names_are_split_into_words():
    assert split_name("HF_TOKEN") == ["hf", "token"]
    assert split_name("accessToken") == ["access", "token"]
    assert split_name("x-api-key") == ["x", "api", "key"]
    assert split_name("spring.datasource.password") == ["spring", "datasource", "password"]
    assert split_name("--") == []


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
    assert secret_kind(name) == kind


def test_what_looks_minted():
    assert looks_generated("abc12345") and looks_generated("AbcdefGhijkl") and looks_generated("x" * 24)
    assert not looks_generated("abc") and not looks_generated("required") and not looks_generated("Kerberos")


def test_what_is_a_digest_or_a_path():
    assert is_digest(HEX) and is_digest("1a2b3c4d-1111-2222-3333-444455556666") and not is_digest(A)
    assert (
        is_plain_path("/etc/ssl/host.key")
        and is_plain_path("~/x")
        and not is_plain_path("/bPxRfiCY7EXAMPLEKEY/x")
        and not is_plain_path("a/b")
    )
