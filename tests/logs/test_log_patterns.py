"""Signs: literals with gaps, captures and conditions, matched in time in proportion to the text."""

from __future__ import annotations

import pytest

from gpuready import rules
from gpuready.catalog import causes, load_catalog
from gpuready.logs import conditions
from gpuready.logs.log_patterns import (
    compile_patterns,
    fold_whitespace,
    pattern_literals,
    pattern_text,
    validate_pattern,
)
from gpuready.logs.pattern_index import PatternIndex
from gpuready.rules.log_rules import load_log_rules
from tests.logs.pattern_samples import sample_text

OPENERS = ("The", "A", "An", "No", "This", "These", "Two", "One", "It", "There", "Install", "Use", "Set", "Look", "Run")


def one(sign):
    validate_pattern("TST001", sign)
    return compile_patterns("TST001", [sign])[0]


def test_a_literal_is_found_anywhere_in_a_line():
    assert one("driver is too old").match_text("The NVIDIA driver is too old (found 11000)") == {}
    assert one("driver is too old").match_text("the driver is old") is None


def test_captures_run_to_the_next_literal_and_to_the_end_of_the_line():
    sign = one("Tried to allocate {want}. GPU {gpu} has")
    assert sign.match_text("x Tried to allocate 4.35 GiB. GPU 3 has a") == {"want": "4.35 GiB", "gpu": "3"}
    assert one("killed process {rest}").match_text("killed process 77 (python)\nnext") == {"rest": "77 (python)"}


def test_a_gap_stays_in_its_line_unless_it_says_otherwise():
    text = "ptxas error in codegen\nValue 'sm_121a' is not defined"
    assert one("ptxas error{}is not defined").match_text(text) is None
    assert one("ptxas error{...}Value '{arch}' is not defined").match_text(text) == {"arch": "sm_121a"}


def test_a_gap_is_bounded():
    assert one("beginning{}end of it").match_text("beginning" + "x" * 5000 + "end of it") is None


def test_a_later_beginning_may_fit_where_the_first_does_not():
    text = "allocate nothing here " + "y" * 500 + " allocate 5 bytes"
    assert one("allocate {n} bytes").match_text(text) == {"n": "5"}


def test_braces_are_doubled():
    assert one('device_map={{"": 0}} refused').match_text('device_map={"": 0} refused') == {}


def test_letter_case_makes_no_difference_and_captures_keep_theirs():
    assert one("Tried to allocate {want}. gpu").match_text("TRIED TO ALLOCATE 2 GiB. GPU 3") == {"want": "2 GiB"}
    assert one({"regex": r"tried to allocate (?P<want>\d{1,4} \w{3})"}).match_text("Tried To Allocate 2 GiB") == {
        "want": "2 GiB"
    }


def test_a_regular_expression_has_alternatives_captures_and_gaps():
    sign = one({"regex": r"(?:CUDA|HIP) out of memory{}(?:GPU|device) (?P<gpu>\d{1,3}) has {left} free"})
    text = "RuntimeError: HIP out of memory. Tried to allocate 2 GiB. GPU 3 has 1 GiB free"
    assert sign.match_text(text) == {"gpu": "3", "left": "1 GiB"}
    assert sign.match_text(text.replace("HIP", "XPU")) is None


def test_a_gap_of_a_regular_expression_over_lines():
    sign = one({"regex": r"ptxas (?:fatal|error){...}value '(?P<arch>sm_\w{2,5})' is not defined"})
    assert sign.match_text("ptxas fatal : x\nValue 'sm_121a' is not defined") == {"arch": "sm_121a"}


@pytest.mark.parametrize(
    ("regex", "literals"),
    [
        (r"(?:torchrun|vllm): command not found", (": command not found",)),
        (r"(?P<lib>lib\w{1,40}\.so[.\d]{0,12}): cannot open shared object", (": cannot open shared object",)),
        (r"(?:out of memory|OOM when allocating) here", ("out of memory here", "oom when allocating here")),
        (r"No module named '?(?!torch\.)(?P<module>\w{1,40})", ("no module named ",)),
        (r"short{}a longer piece after a gap", ("a longer piece after a gap",)),
        (r"(?-i:CUDA Error): no \w{1,9} image", ("cuda error: no ",)),
    ],
)
def test_every_match_of_a_regular_expression_has_one_of_its_literals(regex, literals):
    assert pattern_literals({"regex": regex}) == literals


@pytest.mark.parametrize(
    "regex",
    [
        r"(a+)+b is long enough", r"long enough.*and unbounded", r"(?:long enough){1,20}x{1,20}(?:\w{1,20} ?){1,20}",
        r"\w{1,200}long enough\w{1,200}", r"(?:ab|abab){1,100}long enough", r"(a) is long enough \1", r"long enough (open",
        r"(?:x|long enough)", r"\w{3,9} \d{1,3}", r"long enough{2,}", r"long enough a{1,900}",
    ],
)  # fmt: skip
def test_a_regular_expression_that_may_be_slow_or_has_no_literal_is_refused(regex):
    with pytest.raises(ValueError):
        one({"regex": regex})


@pytest.mark.parametrize("sign", ["cudaErrorNoDevice", {"regex": r"cudaError(?:NoDevice|NotReady)"}])
def test_one_word_is_not_enough(sign):
    row = {"says": sign} if isinstance(sign, str) else sign
    with pytest.raises(ValueError, match="one word"):
        one(sign)
    assert one({**row, "in": "exception"}) and one({**row, "as": "clue"}) and one({**row, "with": ["CUDA"]})


def test_white_space_of_a_sign_is_folded_as_that_of_the_log_is():
    assert one("nvcc fatal   : Unsupported gpu").match_text("nvcc fatal : Unsupported gpu architecture") == {}


@pytest.mark.parametrize(
    "sign",
    [
        "short",
        "{x} begins with a gap",
        "an open {brace for ever",
        {"says": "long enough to be one", "as": "maybe"},
        {"says": "long enough to be one", "in": "heaven"},
        {"says": "long enough to be one", "wen": "x"},
        {"says": "long enough to {be} one", "when": "was < 3"},
        {"says": "long enough to {be} one", "when": "be"},
    ],
)
def test_a_sign_that_cannot_work_is_refused(sign):
    with pytest.raises(ValueError):
        one(sign)


@pytest.mark.parametrize(
    ("text", "value"),
    [("20.00 MiB", 20 << 20), ("1.5 GiB", 1.5 * (1 << 30)), ("6291456 bytes", 6291456), ("12.4", 12.4),
     ("0x1f", 31), ("4,096", 4096), ("80GB", 80 << 30), ("none", None), ("", None), ("1 2 3", None), ("9" * 5000, None)],
)  # fmt: skip
def test_numbers_and_sizes(text, value):
    found = conditions.parse_number(text)
    assert found == value or (value is None and (found is None or found == float("inf")))


@pytest.mark.parametrize(
    ("text", "holds"),
    [("free < want", True), ("want < free", False), ("held >= 0.4 * total", True), ("total - held < 2 GiB", False),
     ("free < want and held > total", False), ("name < 3", False), ("total / held > 1", True), ("held / zero > 1", False)],
)  # fmt: skip
def test_conditions(text, holds):
    captures = {"free": "300 MiB", "want": "2 GiB", "held": "70 GiB", "total": "79 GiB", "name": "x", "zero": "0"}
    assert conditions.condition_holds(text.replace("2 GiB", "2147483648"), captures) is holds


def test_a_condition_decides_over_the_match():
    sign = one({"says": "allocate {want} of {free} free", "when": "want > free"})
    assert sign.match_text("allocate 2 GiB of 1 GiB free") and not sign.match_text("allocate 1 GiB of 2 GiB free")


# -- the signs of the rules ---------------------------------------------------------------------------------


def test_every_sign_of_every_rule_compiles():
    for code in rules.list_codes():
        for sign in compile_patterns(code, causes.list_patterns(code)):
            assert sign.cause == "" or causes.find_cause(sign.cause), f"{code} names {sign.cause}, which is no cause"


def test_every_pattern_matches_its_own_text_and_is_found_by_its_literal():
    """In lower and in upper case, and whichever engine searches: what matches is never missed."""
    rows = [(code, sign) for code in rules.list_codes() for sign in causes.list_patterns(code) if "when" not in sign][
        ::2
    ]
    texts = [fold_whitespace(f"x {sample_text(sign)} x") for _, sign in rows]
    for (code, sign), text in zip(rows, texts, strict=True):
        pattern = compile_patterns(code, [sign])[0]
        sensitive = "(?-i:" in pattern_text(sign)
        for one_case in (text, text if sensitive else text.upper()):
            assert pattern.spans_lines or pattern.match_text(one_case) is not None, (sign, one_case)
            assert any(literal in one_case.lower() for literal in pattern_literals(sign)), (sign, one_case)


def test_the_search_finds_the_patterns_of_every_text():
    index = PatternIndex(load_catalog("patterns"))
    rows = [sign for code in rules.list_codes() for sign in causes.list_patterns(code)][::7]
    data = "\n".join(fold_whitespace(sample_text(sign)) for sign in rows).encode()
    wanted = sorted({(data.lower().find(x.encode()) + len(x.encode()), n) for n, x in enumerate(index.literals)})
    found = set(index.search.find_literals(data))
    assert {hit for hit in wanted if hit[0] >= len(index.literals[hit[1]].encode())} <= found


def test_causes_name_rules_that_exist():
    slugs = [row["slug"] for row in causes.list_causes()]
    assert len(slugs) == len(set(slugs))
    for row in causes.list_causes():
        assert row["codes"] and set(row["codes"]) <= set(rules.list_codes()), row["slug"]


def test_rules_without_a_probe_have_a_cause():
    known = {code for row in causes.list_causes() for code in row["codes"]}
    assert known >= set(load_log_rules())


def test_causes_speak_calmly():
    for row in causes.list_causes():
        for text in (row["says"], row["so"], *(step["does"] for step in row["fix"])):
            assert text.split()[0] not in OPENERS, text
            assert not text.endswith((".", "!")) and "\n" not in text and "  " not in text
        assert len(row["says"]) < 160 and row["source"]
        assert all(isinstance(word, str) for step in row["fix"] for word in step.get("run", ()))


def test_aftermath_compiles_and_means_something():
    rows = causes.list_consequences()
    assert len(compile_patterns("", [{"says": row["says"]} for row in rows])) == len(rows)
    assert all(row["means"] and row["source"] for row in rows)


def test_a_clause_goes_where_its_capture_is_not_known():
    assert causes.fill_captures("the port is taken[: {port}]", {"port": "29500"}) == "the port is taken: 29500"
    assert causes.fill_captures("the port is taken[: {port}]", {}) == "the port is taken"
    assert causes.fill_captures("a[ {x}] b[ {y}]", {"y": "2"}) == "a b 2"


def test_words_are_for_people():
    assert pattern_text({"says": "what it says"}) == "what it says" == pattern_text("what it says")
