"""How often redaction is wrong, both ways: 0 of 200 secrets pass, and under 1 % of harmless values are hidden."""

from __future__ import annotations

from gpuready.system import redact_text
from gpuready.system.redaction.lines import LineRedactor, redact_lines
from gpuready.system.redaction.text import redact_json
from tests.secrets.harmless import values
from tests.secrets.seeded import leaked, seeds


def test_harmless_values_are_left_alone():
    corpus = values()
    hidden = [value for value in corpus if redact_text(value) != value]
    assert len(corpus) >= 2000
    assert len(hidden) < 0.01 * len(corpus), hidden[:20]


def test_nor_are_they_hidden_in_a_recording():
    corpus = values()
    facts = {f"fact.{n}": value for n, value in enumerate(corpus)}
    kept = redact_json(facts)
    assert sum(kept[key] != facts[key] for key in facts) < 0.01 * len(facts)


def test_line_by_line_nothing_passes_that_would_not_pass_whole():
    for seed in seeds():
        flow = LineRedactor()
        lines = ["worker 3 said", *seed.line.split("\n"), "and went on", "step 12: 3.4 s"]
        shown = [flow(line) for line in lines]
        assert leaked("\n".join(shown), [seed]) == [], seed.kind
        assert len(shown) == len(lines)
        assert shown[0] == lines[0] and shown[-1] == lines[-1], seed.kind


def test_lines_that_follow_each_other_are_as_many_as_before():
    key = ["-----BEGIN RSA PRIVATE KEY-----", "abcd", "efgh", "-----END RSA PRIVATE KEY-----", "after"]
    assert redact_lines(key) == (key[0] + "[redacted]", "[redacted]", "[redacted]", "[redacted]" + key[3], "after")
    endless = redact_lines(["-----BEGIN PRIVATE KEY-----", *["x"] * 1000])
    assert endless[-1] == "x" and endless[300] == "[redacted]"


def test_a_flood_of_the_same_lines_is_redacted_as_line_by_line():
    warning = ["loader.py:12: UserWarning: the key is not used", "  warnings.warn("]
    for secret in (["password: hunter2hunter2"], ["export HF_TOKEN=\\", "hf_" + "aB3dE5fG7hJ9kL1mN3pQ5rS7tU9vW1xY3z"]):
        lines = [*warning * 40, *secret, *warning * 40, *secret * 50]
        assert LineRedactor().redact_block(lines) == list(redact_lines(lines)) != lines
    assert LineRedactor().redact_block(warning * 40) == warning * 40


def test_the_words_of_a_command_line_are_told_apart_by_zeros():
    assert redact_text("mysql\0--password\0hunter2\0-v") == "mysql --password [redacted] -v"
    assert redact_text("python\0train.py\0--max-tokens\x004096") == "python\0train.py\0--max-tokens\x004096"


def test_time_grows_with_the_text_and_not_faster():
    """Eight times the text takes about eight times the time; a quadratic pattern takes sixty-four."""
    import time

    def seconds(text: str) -> float:
        begun = time.process_time()
        redact_text(text)
        return time.process_time() - begun

    pieces = ("%41", "\\n", "\x1b[31m", "\\nhf_", "aGZf", f"hf_{'a' * 20}\n", "--password \\\n ", "token&quot;:&quot;a",
              "&amp;sig=a", "\\\\\\\"token\\\\\\\":", "AKIA", "://u:p@")  # fmt: skip
    for piece in pieces:
        small = min(seconds(piece * (10_000 // len(piece))) for _ in range(3))
        large = seconds(piece * (80_000 // len(piece)))
        assert large < 30 * small + 0.05, piece
