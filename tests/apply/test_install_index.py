"""An index that fails in the middle: the install ends within its time, and the old environment stands."""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from gpuready.apply.install import DEADLINE
from tests.apply.wheels import lock, wheel


class Index(BaseHTTPRequestHandler):
    """A simple index of one folder, whose wheels come as badly as it is told."""

    def do_GET(self):
        name = self.path.strip("/").split("/")[-1]
        if not name.endswith(".whl"):
            found = [p.name for p in self.server.folder.glob(f"{name}-*.whl")]
            self.sent("".join(f'<a href="/files/{n}">{n}</a>\n' for n in found).encode())
            return
        data = (self.server.folder / name).read_bytes()
        how = self.server.how
        self.server.asked += 1
        if how == "reset":
            self.connection.close()
        elif how == "cut":
            self.sent(data[: len(data) // 2], len(data))
        elif how == "wrong":
            self.sent(data[:-7])
        elif how == "slow":
            self.headed(len(data))
            for at in range(len(data)):
                self.wfile.write(data[at : at + 1])
                self.wfile.flush()
                time.sleep(0.2)
        else:
            self.sent(data)

    do_HEAD = do_GET

    def headed(self, size):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(size))
        self.end_headers()

    def sent(self, data, size=None):
        self.headed(len(data) if size is None else size)
        if self.command == "GET":
            self.wfile.write(data)

    def log_message(self, *args):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *requested):
        """Clients that went away are what is tested here, and nothing to print."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(*requested)


@pytest.fixture
def index(standing):
    server = Server(("127.0.0.1", 0), Index)
    server.folder, server.how, server.asked, server.daemon_threads = standing.folder / "remote", "well", 0, True
    pair = [wheel(server.folder, name, "4.0") for name in ("alpha", "beta")]
    standing.locks["4.0"] = lock(standing.folder / "4.0.lock", *pair)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


def reported(index, **more) -> dict[str, str]:
    address = f"http://127.0.0.1:{index.server_port}/simple"
    return {"UV_OFFLINE": "0", "UV_DEFAULT_INDEX": address, "UV_HTTP_TIMEOUT": "2", "UV_HTTP_RETRIES": "0"} | more


def without_folder(bench) -> list[str]:
    words = bench.argv("4.0")
    at = words.index("--find-links")
    return words[:at] + words[at + 2 :]


@pytest.mark.parametrize("how", ["reset", "cut", "wrong", "slow"])
def test_f12_an_index_that_fails_in_the_middle(standing, index, how):
    index.how = how
    began = time.monotonic()
    deadline = "8" if how == "slow" else "60"
    ran = standing.run(*without_folder(standing), env=reported(index, GPUREADY_INSTALL_DEADLINE=deadline))
    assert ran.code == 2 and "failed" in ran.out and "Traceback" not in ran.err, ran.out + ran.err
    assert index.asked > 0 and time.monotonic() - began < DEADLINE / 2
    # A wheel that is smaller than the index says may still be read by parts; what is published is whole or nothing.
    assert standing.version() == "1.0" and len(list((standing.home / "installs").iterdir())) == 1


def test_f12_and_when_it_is_well_again(standing, index):
    ran = standing.run(*without_folder(standing), env=reported(index))
    assert ran.code == 0, ran.out + ran.err
    assert index.asked > 0 and standing.complete()[-1].startswith("0002")


def test_d56_offline_is_named(standing, index):
    ran = standing.run(*without_folder(standing), "--offline", env=reported(index))
    said = " ".join(ran.out.split())
    assert ran.code == 2 and "the network is off, and what is missing is not in uv's cache" in said, ran.out
    assert index.asked == 0


@pytest.mark.parametrize(
    ("first", "why"), [('echo "uv 0.4.1"; exit 0', "older than"), ("exit 1", "does not say its version")]
)
def test_d57_a_uv_that_will_not_do(bench, tmp_path, first, why):
    from tests.apply.test_install import instead

    ran = bench.install("1.0", before=instead(tmp_path, first))
    assert ran.code == 2 and why in ran.err and ran.err.count("\n") == 1 and not bench.home.exists()


def test_an_index_that_nothing_comes_from_is_not_asked():
    from gpuready.apply.install_steps import extra_index_environment
    from gpuready.apply.uv import UvSettings
    from gpuready.model.plan import LockedPackage, Plan

    made = UvSettings()
    made.extra = ("https://a.example/simple", "https://b.example/simple")
    plan = Plan(
        "x", "1", "plan", lock=(LockedPackage("x", "1"), LockedPackage("y", "1", index="pip-1")), resolved="resolved"
    )
    assert extra_index_environment(made, plan) == {"UV_INDEX": "https://b.example/simple"}
    assert extra_index_environment(made, plan.replace(lock=plan.lock[:1])) == {}
    assert extra_index_environment(made, plan.replace(resolved=""))["UV_INDEX"].count("example") == 2
