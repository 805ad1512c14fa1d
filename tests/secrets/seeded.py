"""Two hundred secrets of forty kinds, minted from a number: none is anybody's, and no two runs differ."""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Callable
from typing import NamedTuple
from urllib.parse import quote

ALNUM = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
WORD = ALNUM + "_-"
SEEDED = 20261115
EACH = 5


class Seed(NamedTuple):
    """One secret: what must never be shown, how it stands in a text, and as which variable it is set."""

    kind: str
    needles: tuple[str, ...]
    line: str
    name: str
    value: str


class Mint:
    """Random words of a fixed sequence."""

    def __init__(self, seed: int):
        self.pick = random.Random(seed)

    def word(self, size: int, letters: str = ALNUM) -> str:
        return "".join(self.pick.choice(letters) for _ in range(size))

    def mixed(self, size: int, letters: str = ALNUM) -> str:
        """A word that has digits, as minted ones of any length do."""
        while True:
            found = self.word(size, letters)
            if any(c.isdigit() for c in found) and any(c.isalpha() for c in found):
                return found

    def password(self) -> str:
        return self.mixed(9) + self.pick.choice("!#%^*+~.") + self.mixed(6)

    def bytes(self, size: int) -> bytes:
        return self.pick.randbytes(size)


def _plain(prefix: str, size: int, letters: str, name: str) -> Callable[[Mint], Seed]:
    """A token that its own beginning tells."""

    def one(mint: Mint) -> Seed:
        body = mint.mixed(size, letters)
        return Seed("", (body,), f"request with {prefix}{body} was refused", name, prefix + body)

    return one


def _named(name: str, size: int, letters: str = ALNUM, form: str = "{name}={body}") -> Callable[[Mint], Seed]:
    """A value that only its name tells."""

    def one(mint: Mint) -> Seed:
        body = mint.mixed(size, letters)
        return Seed("", (body,), form.format(name=name, body=body), name, body)

    return one


def _url(form: str, name: str) -> Callable[[Mint], Seed]:
    def one(mint: Mint) -> Seed:
        body = mint.mixed(18)
        return Seed("", (body,), f"using {form.format(body)} now", name, form.format(body))

    return one


def _pem(label: str) -> Callable[[Mint], Seed]:
    def one(mint: Mint) -> Seed:
        rows = [base64.b64encode(mint.bytes(48)).decode() for _ in range(6)]
        text = f"-----BEGIN {label}-----\n" + "\n".join(rows) + f"\n-----END {label}-----"
        return Seed("", tuple(rows), text, "SSH_PRIVATE_KEY", text)

    return one


def _service_account(mint: Mint) -> Seed:
    rows = [base64.b64encode(mint.bytes(48)).decode() for _ in range(3)]
    key = "-----BEGIN PRIVATE KEY-----\n" + "\n".join(rows) + "\n-----END PRIVATE KEY-----\n"
    text = json.dumps({"type": "service_account", "private_key_id": mint.word(40, HEX), "private_key": key})
    return Seed("", tuple(rows), text, "GCP_SERVICE_ACCOUNT", text)


def _aws(mint: Mint) -> Seed:
    key = "AKIA" + mint.word(16, string.ascii_uppercase + "234567")
    secret = mint.mixed(40, ALNUM + "/+")
    text = f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {secret}\n"
    return Seed("", (key, secret), text, "AWS_SECRET_ACCESS_KEY", secret)


def _jwt(mint: Mint) -> Seed:
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")
        for part in ({"alg": "RS256", "kid": mint.word(8)}, {"sub": mint.word(12), "exp": 1893456000})
    )
    sign = base64.urlsafe_b64encode(mint.bytes(48)).decode().rstrip("=")
    return Seed("", (body, sign), f"got {head}.{body}.{sign} back", "SESSION_JWT", f"{head}.{body}.{sign}")


def _neptune(mint: Mint) -> Seed:
    inside = {"api_address": "https://app.neptune.example", "api_key": mint.mixed(24)}
    text = base64.b64encode(json.dumps(inside).encode()).decode()
    return Seed("", (text[40:],), f"neptune.init_run with {text}", "NEPTUNE_API_TOKEN", text)


def _docker(mint: Mint) -> Seed:
    auth = base64.b64encode(f"me:{mint.mixed(20)}".encode()).decode()
    text = json.dumps({"auths": {"registry.example": {"auth": auth}}})
    return Seed("", (auth.rstrip("="),), text, "DOCKER_AUTH_CONFIG", text)


def _netrc(mint: Mint) -> Seed:
    body = mint.mixed(40, HEX)
    text = f"machine api.wandb.ai\n  login user\n  password {body}\n"
    return Seed("", (body,), text, "NETRC_PASSWORD", body)


def _basic(mint: Mint) -> Seed:
    body = base64.b64encode(f"svc:{mint.mixed(16)}".encode()).decode()
    return Seed("", (body.rstrip("="),), f"Authorization: Basic {body}", "HTTP_AUTHORIZATION", f"Basic {body}")


def _cookie(mint: Mint) -> Seed:
    one, two = mint.mixed(24), mint.mixed(32, HEX)
    text = f"Cookie: sessionid={one}; csrftoken={two}"
    return Seed("", (one, two), text, "SESSION_COOKIE", f"sessionid={one}; csrftoken={two}")


def _slack_hook(mint: Mint) -> Seed:
    body = mint.mixed(24)
    text = f"https://hooks.slack.com/services/T{mint.word(8)}/B{mint.word(8)}/{body}"
    return Seed("", (body,), f"posting to {text}", "SLACK_WEBHOOK", text)


def _encoded(mint: Mint) -> Seed:
    body = mint.mixed(16)
    text = quote(f"https://svc:{body}@pip.example.org/simple", safe="")
    return Seed("", (body,), f"redirected to /login?next={text}", "NEXT_PAGE", f"/login?next={text}")


def _wrapped(mint: Mint) -> Seed:
    """base64 of a token, as Kubernetes keeps its secrets."""
    prefix, size = mint.pick.choice((("hf_", 34), ("ghp_", 36), ("glpat-", 20), ("sk-proj-", 48)))
    body = base64.b64encode((prefix + mint.mixed(size)).encode()).decode()
    return Seed("", (body.rstrip("=")[8:],), f"data: {{hub: {body}}}", "HUB_DATA", body)


def _split(mint: Mint) -> Seed:
    """A token that a terminal broke over two lines."""
    body = mint.mixed(34)
    cut = mint.pick.randint(18, 28)
    text = f"export with hf_{body[:cut]}\n{body[cut:]} failed"
    return Seed("", (body[:cut], body[cut:]), text, "TERMINAL_TEXT", text)


def _continued(mint: Mint) -> Seed:
    body = mint.password()
    text = f"mysqldump --user me \\\n    --password \\\n    {body} \\\n    --all-databases"
    return Seed("", (body,), text, "BACKUP_COMMAND", text)


def _sas(mint: Mint) -> Seed:
    body = quote(base64.b64encode(mint.bytes(32)).decode(), safe="")
    text = f"https://acct.blob.core.windows.net/data/x.bin?sv=2024-11-04&se=2030-01-01&sr=b&sig={body}"
    return Seed("", (body,), f"GET {text} 403", "DATA_URL", text)


def _azure(mint: Mint) -> Seed:
    body = base64.b64encode(mint.bytes(64)).decode()
    text = f"DefaultEndpointsProtocol=https;AccountName=acct;AccountKey={body};EndpointSuffix=core.windows.net"
    return Seed("", (body.rstrip("="),), text, "AZURE_STORAGE_CONNECTION_STRING", text)


def _password(mint: Mint) -> Seed:
    body = mint.password()
    text = f'{{"user": "me", "db_password": "{body}"}}'
    return Seed("", (body,), text, "DB_PASSWORD", body)


KINDS: dict[str, Callable[[Mint], Seed]] = {
    "hub token": _plain("hf_", 34, ALNUM, "HF_TOKEN"),
    "hub organisation": _plain("api_org_", 34, ALNUM, "HF_ORG_TOKEN"),
    "wandb key": _named("WANDB_API_KEY", 40, HEX),
    "wandb key, new": _plain("wandb_v1_", 77, WORD, "WANDB_API_KEY"),
    "comet key": _named("COMET_API_KEY", 25, form="{name}: {body}"),
    "mlflow password": _named("MLFLOW_TRACKING_PASSWORD", 14),
    "neptune token": _neptune,
    "aws pair": _aws,
    "google key": _plain("AIza", 35, WORD, "GOOGLE_API_KEY"),
    "google service account": _service_account,
    "azure storage": _azure,
    "azure client secret": _named("AZURE_CLIENT_SECRET", 37, ALNUM + "~.", form='"{name}": "{body}"'),
    "azure signed url": _sas,
    "github classic": _plain("ghp_", 36, ALNUM, "GITHUB_TOKEN"),
    "github fine-grained": _plain("github_pat_", 80, ALNUM + "_", "GH_TOKEN"),
    "gitlab": _plain("glpat-", 20, WORD, "GITLAB_TOKEN"),
    "bitbucket": _plain("ATBB", 32, ALNUM, "BITBUCKET_APP_PASSWORD"),
    "git remote": _url("https://oauth2:{}@gitlab.example.org/team/repo.git", "GIT_REMOTE"),
    "pip index url": _url("https://svc:{}@pypi.example.org/simple", "PIP_INDEX_URL"),
    "netrc": _netrc,
    "docker config": _docker,
    "ssh private key": _pem("OPENSSH PRIVATE KEY"),
    "pem private key": _pem("RSA PRIVATE KEY"),
    "jwt": _jwt,
    "slack token": _plain("xoxb-1234567890-1234567890123-", 24, ALNUM, "SLACK_BOT_TOKEN"),
    "slack webhook": _slack_hook,
    "openai": _plain("sk-proj-", 74, WORD, "OPENAI_API_KEY"),
    "anthropic": _plain("sk-ant-api03-", 93, WORD, "ANTHROPIC_API_KEY"),
    "cohere": _named("CO_API_KEY", 40, form="export {name}='{body}'"),
    "npm": _plain("npm_", 36, ALNUM, "NPM_TOKEN"),
    "pypi": _plain("pypi-AgEIcHlwaS5vcmc", 60, WORD, "TWINE_PASSWORD"),
    "database url": _url("postgresql+psycopg://app:{}@db.internal:5432/prod", "DATABASE_URL"),
    "redis url": _url("rediss://:{}@10.0.0.7:6379/0", "REDIS_URL"),
    "basic header": _basic,
    "cookie": _cookie,
    "password in json": _password,
    "url-encoded": _encoded,
    "base64 of a token": _wrapped,
    "token over two lines": _split,
    "option over two lines": _continued,
}


def seeds() -> list[Seed]:
    """All of them, the kinds in turn."""
    mint = Mint(SEEDED)
    return [make(mint)._replace(kind=kind) for _ in range(EACH) for kind, make in KINDS.items()]


def leaked(text: str, several: list[Seed]) -> list[tuple[str, str]]:
    """Kind and needle of every secret that a text shows, plain or as JSON, HTML or a URL would write it."""
    found = []
    for seed in several:
        for needle in seed.needles:
            forms = {needle, needle[:14], needle[-14:], quote(needle, safe=""), needle.replace("/", "\\/")}
            if any(form in text for form in forms):
                found.append((seed.kind, needle))
    return found
