"""Models by hub id: in the local cache, in the catalogue, or fetched on request."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from gpuready.workflow import job_spec
from gpuready.workflow.fit import fit_job
from gpuready.workflow.refusal import Refused

CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000,
}  # fmt: skip


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--somebody--small" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    refs = tmp_path / "models--somebody--small" / "refs"
    refs.mkdir()
    (refs / "main").write_text("abc", encoding="utf-8")
    return tmp_path


@pytest.fixture
def hub(monkeypatch):
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            found = self.path == "/somebody/other/resolve/main/config.json"
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(CONFIG).encode() if found else b"")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    yield asked
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_config_in_the_hub_cache_is_found_by_its_id(cache):
    result = fit_job(("somebody/small",), {}, on="h200", search=False)
    assert result.model == "somebody/small" and result.peak_allocated


def test_a_snapshot_is_found_without_its_ref(cache):
    (cache / "models--somebody--small" / "refs" / "main").unlink()
    assert job_spec.find_cached_config("somebody/small")[1] == CONFIG


@pytest.mark.parametrize("name", ["../small", "a/b/c", "a/../b", "", "/etc", ".hidden/x"])
def test_what_is_no_hub_id_never_becomes_a_path(cache, name):
    assert job_spec.find_cached_config(name) is None


def test_only_the_config_is_fetched(cache, hub):
    result = fit_job(("somebody/other",), {}, on="h200", search=False, download=True)
    assert result.peak_allocated and hub == ["/somebody/other/resolve/main/config.json"]


def test_nothing_is_fetched_unasked(cache, hub):
    with pytest.raises(Refused, match="--download"):
        fit_job(("somebody/other",), {}, on="h200", search=False)
    assert hub == []


@pytest.mark.parametrize(("name", "word"), [("somebody/absent", "Not Found"), ("a b", "hub id")])
def test_what_cannot_be_fetched_is_one_sentence(cache, hub, name, word):
    with pytest.raises(Refused, match=word):
        fit_job((name,), {}, on="h200", search=False, download=True)


def test_an_offline_hub_is_not_asked(cache, hub, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Refused, match="HF_HUB_OFFLINE"):
        fit_job(("somebody/other",), {}, on="h200", search=False, download=True)
    assert hub == []
