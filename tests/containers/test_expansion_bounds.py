"""Variables of a container file expand within a bound, however they are nested."""

from __future__ import annotations

import tracemalloc

import pytest

from gpuready.containers import dockerfile, dockerfile_facts

DOUBLING = "".join(f"ARG A{n + 1}=" + f"${{A{n}}}" * 8 + "\n" for n in range(9))
MANY_WORDS = "ENV A=" + "x" * 60_000 + "\n"


def facts_of(text):
    return dockerfile_facts.read_dockerfile_facts(lambda path: None, "Dockerfile", text)


@pytest.mark.parametrize(
    "text",
    [
        "ARG A0=xxxxxxxxxx\n" + DOUBLING + "FROM python:${A9}\n",
        "FROM python:3.12\nARG A0=xxxxxxxxxx\n" + DOUBLING + "RUN pip install torch==$A9\n",
        "FROM python:3.12\n" + DOUBLING.replace("ARG", "ENV").replace("${A0}", "${B:-xxxxxxxx}"),
        "FROM python:3.12\n" + MANY_WORDS + "RUN pip install" + " a$A" * 500 + "\n",
        "FROM python:3.12\n" + MANY_WORDS + "COPY" + " a$A" * 500 + " /\n",
        "FROM python:3.12\n" + MANY_WORDS + "ENV" + "".join(f" B{n}=a$A" for n in range(500)) + "\n",
        "FROM python:3.12 AS a\n" + MANY_WORDS + "".join(f"FROM a AS s{n}\nENV B=a$A\n" for n in range(100))
        + "FROM a\n" + "".join(f"COPY --from={n} /app /app\n" for n in range(100)),
        "FROM python:3.12\n" + MANY_WORDS + "RUN " + "A=a$A$A; " * 500 + "\n",
    ],
    ids=["from", "arg", "env", "run", "copy", "one-env", "stages", "shell"],
)  # fmt: skip
def test_a_short_file_does_not_become_a_gigabyte(text):
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="expand to more than"):
            facts_of(text)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


def test_what_a_build_really_expands_is_taken():
    text = "FROM python:3.12\nENV P=/opt/bin\n" + "ENV PATH=$P:$P\n" * 200 + "ENV T=2.8.0\nRUN pip install torch==$T\n"
    assert {fact.key: fact.value for fact in facts_of(text)}["torch.version"].startswith("2.8.0")


def test_long_text_around_a_variable_costs_no_square():
    values = dockerfile.BuildValues({"A": "x" * 50_000})
    assert len(dockerfile.expand_variables("$A-" + "y" * 59_999, values)) == 110_000
