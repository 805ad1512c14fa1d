"""Decide by a vote which rank differs, where several fail alike: who was heard of first is chance. Pure: the ends in, ranks out."""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

from gpuready.model.last_error import NATIVE_STACK, RANK_TAG, last_error_line, names_error
from gpuready.model.run import RankEnd
from gpuready.model.visible_text import cut_middle

TOGETHER_SECONDS = 1.0
"""Ranks that fail alike within so many seconds have met the same thing."""
LOST_PEER_PHRASES = (
    "closed by peer",
    "reset by peer",
    "closed by remote peer",
    "Broken pipe",
    "recvValue failed",
    "Connection was likely closed",
    "Socket closed",
    "ncclRemoteError",
    "Application timeout caused pair closure",
)
"""How a rank reports that a peer is gone: it did not fail first, however early it says so."""
GAVE_UP_PHRASES = (
    "Watchdog caught collective operation timeout",
    "ms for recv operation",
    "ms for send operation",
    "failed to pass monitoredBarrier",
    "reached monitoredBarrier, but received errors",
    "wait timeout after",
    " clients joined",
)
"""How a rank reports that a peer did not come in time: the peer may be well, and late."""
_ACCUSES = re.compile(r"not to match|inconsistent|mismatch|expects same|differs? (?:from|on|between)", re.IGNORECASE)
_NAMED = re.compile(
    r"\b(?:rank|process)(?:s|es|\(s\))?[\s:=#]{0,3}(?:\w*\(?[\[{(])?(\d{1,6}(?:, ?\d{1,6})*)(?!\w|\.\d)", re.IGNORECASE
)
"""``rank 1``, ``rank(s) [2]``, ``ranks: dict_keys([0, 3])``"""
_OF_RANK = re.compile(r"Traceback \(most recent call last\): \(RANK (\d+)\)")
_OF_RANKS, _ITEMS = re.compile(r"\branks?\b", re.IGNORECASE), re.compile(r"[\[{(]([^\[\](){}]+)[\])}]")
_OTHER_SIZE = re.compile(r"op\.preamble\.length <= op\.nbytes\. (\d+) vs (\d+)")
_OF_LIBRARY = re.compile(r"/torch/|-packages/|/lib/python3")
_FRAME = re.compile(r'  File "(.+)", line (\d+) in ')
"""``  File "/j/train.py", line 7 in step``, as faulthandler shows it, the innermost first"""
_TENSOR = re.compile(r"[a-z](\d{0,3})(?:_\w{1,12})? \[([\d, ]+)\]")
_NUMBER, _OWN_RANK = re.compile(r"\d+"), re.compile(r"\[?\brank\W{0,3}\d+\]?:?", re.IGNORECASE)
_FRACTION = re.compile(r"(?<!\d)\d+[.:]\d[\d.:,]*(?:e[-+]?\d+)?")
"""``12:00:31,204``, ``3.1e-05``: what lines of the same step have of their own"""
_NOT_FINITE = re.compile(r"(?<![\w.])[-+]?(?:nan|inf(?:inity)?)\b", re.IGNORECASE)
_COLLECTIVE = re.compile(r"distributed_c10d\.py\", line \d+,? in ([a-z]\w*)")
_ERROR_BEGINS = re.compile(
    r"(?:\[rank\d+\]:\s?)?(?:Traceback \(most recent|terminate called|Fatal Python error|[\w.]*Error: )"
)
_AWAITED = re.compile(r"keys: /default_pg/\S*//cpu//\d+/(\d+)$|waiting for clients\. \d+/(\d+) clients joined")
"""``wait timeout after 15000ms, keys: /default_pg/0//cpu//0/4``: the rank whose address gloo waits for; ``2/3 clients joined``: of how many"""
_UNREACHED = re.compile(
    r"(?:while trying to connect to|failed to connect to any network address of) \(([^\s(),]+), (\d+)\)"
)
_LISTENS = re.compile(r"failed to listen on any local network address\. port: (\d+)")
_STORE = re.compile(r"(?:connect to|addresses of|address of) \(([^\s(),]+), (\d+)\)")
"""``trying to connect to (10.99.0.77, 42703)``, ``The IPv4 network addresses of (n01, 29500) cannot be retrieved``"""
_WAITED = re.compile(
    r"timed? ?out|timeout|deadline|overdue|watchdog|no progress|took longer|\bstall|\bstuck", re.IGNORECASE
)
CHAIN_BEGINS = ("During handling of the above", "The above exception was")
ASK_TORCH = "--check-collectives"
LINES, ALIKE_SHARE, DETAILS = 64, 0.8, 2
"""Lines before the end of a rank's output that are compared; from when on two say the same thing with another value; lines of a message that are told."""


def find_odd_ranks(
    ends: Sequence[RankEnd], seconds: Mapping[int, float], world: int, victims: Collection[int] = ()
) -> tuple[int, ...]:
    """Return the rank in which most see the difference; all that failed alike where there is no majority; none where the order decides."""
    accused = _list_accusations(ends, world, victims)
    if accused:
        return _count_votes(accused, world) or tuple(sorted({*accused, *accused.values()}))
    first = min(ends, key=lambda end: seconds[end.rank], default=None)
    together = [
        end for end in ends if first is not None and seconds[end.rank] - seconds[first.rank] <= TOGETHER_SECONDS
    ]
    alike = [end for end in together if first is not None and _ends_alike(end, first)]
    if 2 * len(alike) <= world:
        return ()
    for odd in ([r for r in alike if _find_own_error(r)], [r for r in alike if _was_first_not_finite(r, ends, world)]):
        if len(odd) == 1:
            return (odd[0].rank,)
    return tuple(sorted(end.rank for end in alike))


def explain_vote(ends: Sequence[RankEnd], rank: int, world: int) -> str:
    """Say by what a rank differs from the others; empty where it was named by the order of the failures."""
    difference = find_difference(ends, world)
    shown = difference[1] if difference and difference[0] == rank else ""
    own = next((end for end in ends if end.rank == rank), None)
    if own is not None and own.failed and 2 * sum(end.left_early for end in ends) > world and is_victim(own.last, ()):
        return "it still communicates, and most of the others have ended well: it does more than they do, as steps or batches"
    if mismatch := find_size_mismatch(ends):
        return f"{mismatch.partition('; ')[0]}; {shown}" if shown else mismatch
    accused = _list_accusations(ends, world, [end.rank for end in ends if is_victim(end.last, end.stack)])
    line = next((last_error_line(end.last) for end in ends if accused.get(end.rank) == rank), "")
    if line:
        return f"{list(accused.values()).count(rank)} of {world} ranks name it: {cut_middle(line)}"
    if rank in accused:
        said = next(last_error_line(end.last) for end in ends if end.rank == rank)
        return f"it alone says so: {cut_middle(said)}" if len(accused) == 1 else "the others do not name each other"
    alike = [end for end in ends if own is not None and _ends_alike(end, own)]
    errors = {end.rank: error for end in alike if 2 * len(alike) > world and (error := _find_own_error(end))}
    if list(errors) == [rank]:
        return f"its log alone has an error before that of all: {cut_middle(errors[rank])}"
    is_odd = own is not None and _was_first_not_finite(own, ends, world)
    return (
        "its log shows a value that is not finite where those of the others show a number"
        if is_odd
        else shown
        if _WAITED.search(last_error_line(own.last if own else ()))
        else ""
    )


def is_victim(last: Sequence[str], stack: Iterable[str]) -> bool:
    """Whether a rank waited in a collective, or lost its peer there: it was well until another one failed."""
    lost = any(words in line for line in list(last)[-20:] for words in LOST_PEER_PHRASES)
    return lost or any("/torch/distributed/" in line for line in stack)


def find_difference(ends: Sequence[RankEnd], world: int) -> tuple[int, str] | None:
    """Return the one rank that was in another collective than all others, or that printed another line, and what it shows."""
    if len(ends) != world or world < 3:
        return None
    names = {end.rank: (_COLLECTIVE.findall("\n".join(end.last)) or [""])[-1] for end in ends}
    places = {end.rank: _find_place(end) for end in ends}
    full = {end.rank: end.call for end in ends if end.call}  # who is ended by a signal tells none
    shapes = {rank: call.partition(" at ")[0] for rank, call in full.items()}
    if len(shapes) == world - 1 and find_size_mismatch(ends):
        rank = next(end.rank for end in ends if end.rank not in shapes)
        if len(set(shapes.values())) == 1:
            return rank, f"all others were in {shapes.popitem()[1]}"
        least = min(shapes, key=lambda other: _count_bytes(shapes[other]))
        if places[rank] == places[least]:
            shapes[rank] = shapes[least]  # it crashed, since more came than it expected
    for calls in (names, shapes, full, places) if 2 * len(shapes) > world and len(shapes) > 2 else (names, places):
        for rank, call in calls.items():
            others = {one for other, one in calls.items() if other != rank}
            if len(others) == 1 and call not in others and call and "" not in others:
                return rank, f"it was in {call}, and all others in {others.pop()}"
    said = {end.rank: lines for end in ends if (lines := _list_lines_before_error(end))}
    if len(said) < 3 or 2 * len(said) <= world:
        return None
    counts = Counter(line for lines in said.values() for line in set(lines))
    shared = sorted(line for line, ranks in counts.items() if ranks == len(said) - 1)
    found = {rank: pair for rank, lines in said.items() if (pair := _find_odd_line(lines, counts, shared))}
    rank, (own, other) = next(iter(found.items())) if len(found) == 1 else (-1, ("", ""))
    return (
        (rank, f"its log says {cut_middle(own, 120)!r}, and those of the others {cut_middle(other, 120)!r}")
        if found and own
        else None
    )


def _count_bytes(call: str) -> int:
    """``all_reduce(float32 [8, 4])``: 128"""
    tensors = [(int(bits or 8), map(int, sizes.split(","))) for bits, sizes in _TENSOR.findall(call)]
    return sum(math.prod(sizes) * bits // 8 for bits, sizes in tensors)


def _find_place(end: RankEnd) -> str:
    """``train.py:7``: the line of the user's in which its collective is, or that its crash shows."""
    frames = [found for line in end.last if (found := _FRAME.match(line)) and not _OF_LIBRARY.search(found[1])]
    shown = f"{frames[0][1].rpartition('/')[2]}:{frames[0][2]}" if frames else ""
    return end.call.partition(" at ")[2] or shown


def _list_lines_before_error(end: RankEnd) -> list[str]:
    at = next((i for i, line in enumerate(end.last) if _ERROR_BEGINS.match(line)), len(end.last))
    return [" ".join(_OWN_RANK.sub("", line).split()) for line in end.last[:at][-LINES:] if line.strip()]


def _find_odd_line(own: list[str], counts: Mapping[str, int], shared: list[str]) -> tuple[str, str] | None:
    """Return a line of one rank and the other that all others have in its place: ``model: torch.float64``, ``model: torch.float32``."""
    missing = [line for line in shared if line not in own]
    pairs = ((line, other) for line in own if counts[line] == 1 for other in missing)
    return next((pair for pair in pairs if SequenceMatcher(None, *pair).ratio() > ALIKE_SHARE), None)


def find_other_numbers(end: RankEnd, world: int) -> str:
    """Say that a rank waited for itself, or for more ranks than its job has; empty where it did not, or where their number is unknown (0)."""
    found = _AWAITED.search(last_error_line(end.last)) if world else None
    if found and found[1] == str(end.rank):
        return (
            f"it waited for the address of rank {end.rank}, which is its own: its RANK is not the one that it was given"
        )
    if found is None or (int(found[1]) < world if found[1] else int(found[2]) == world):
        return ""
    waited = f"for a rank {found[1]}" if found[1] else f"for {found[2]} ranks"
    return f"it waited {waited} in a job of {world} ranks: its WORLD_SIZE is not the one that it was given"


def find_other_address(end: RankEnd, master: str, port: int) -> str:
    """Say that a rank looked for the store at another address than it was given, or wanted to be the store itself."""
    error = last_error_line(end.last)
    if end.rank and (listens := _LISTENS.search(error)) and listens[1] == str(port):
        return f"it wanted to listen on port {port}, where rank 0 listens: its rank is not the one that it was given (RANK)"
    found = (_STORE if error else _UNREACHED).search(error or _last_words(end)) if master and port else None
    given = (("MASTER_ADDR", 1, master), ("MASTER_PORT", 2, str(port)))
    names = [name for name, own, value in given if found and found[own] != value]
    if found is None or not names:
        return ""
    return f"it looked for rank 0 at {found[1]} port {found[2]}, and the job has {master} port {port}: its {' and '.join(names)} is not the one that it was given"


def find_unreached_store(end: RankEnd) -> tuple[str, int] | None:
    """Return the address at which a rank has found nobody: ``timed out after 12000ms while trying to connect to (127.0.0.1, 41399)``"""
    found = _UNREACHED.search(last_error_line(end.last) or _last_words(end))
    return (found[1], int(found[2])) if found else None


def speaks_of_waiting(last: Sequence[str]) -> bool:
    """Whether its error says that something took too long; its last lines, where it has none."""
    error = last_error_line(last)
    return any(map(_WAITED.search, [error] if error else list(last)[-20:]))


def raised_by_itself(last: Sequence[str]) -> bool:
    """Whether its exception was raised in a file of the user, and in no library."""
    frames = [line for line in last if line.lstrip().startswith('File "')]
    return not any(part in line for line in frames[-1:] for part in ("-packages/", "/lib/python3"))


def _last_words(end: RankEnd) -> str:
    """The last line of a rank before a native stack: who has said something since such a call has come through."""
    return next((line for line in reversed(end.last) if line.strip() and not line.startswith(NATIVE_STACK)), "")


def explain_first(first: Sequence[int], ends: Sequence[RankEnd], world: int) -> str:
    """Say by what a rank differs, or why none can be named."""
    named = [end for end in ends if end.rank in first and end.failed]
    waited = len(first) > 1 and any(
        words in line for end in named for line in end.last[-20:] for words in GAVE_UP_PHRASES
    )
    return explain_vote(ends, first[0], world) or (
        f"each waited for another, and nothing shows which did not come; {ASK_TORCH} compares their collectives"
        if waited
        else ""
    )


def describe_first(first: Sequence[int], ends: Sequence[RankEnd], world: int) -> str:
    """The verdict in one line, from all ends: ``rank 1 on n01 failed first: ValueError: bad shard``."""
    end = next(end for end in ends if end.rank == first[0])
    error = last_error_line(end.last)
    how = (
        end.how
        if (end.signal in (9, 15) and not end.stopped) or end.lost
        else f"{error}{_list_details(end, error)}" or end.how
    )
    how = "it did not come, the others gave up waiting for it" if end.stopped and end.signal and not error else how
    why = explain_first(first, ends, world)
    if ASK_TORCH in why and len(first) > 1:
        return f"it is not known which rank: {why}"
    if len(first) > 1:
        return f"ranks {', '.join(map(str, first[:8]))} failed at the same time: {cut_middle(why or how)}"
    if end.left_early:
        return f"rank {end.rank} on {end.host} left first: exit {end.code}, while the others still needed it"
    return f"rank {end.rank} on {end.host} failed first: {cut_middle(f'it differs from the others: {why}' if why else how)}"


def _list_details(end: RankEnd, error: str) -> str:
    """The indented lines of an exception's message, as of pydantic and of load_state_dict, which name what is wrong."""
    at = next((i for i in reversed(range(len(end.last))) if error and end.last[i].endswith(error)), len(end.last))
    after = [RANK_TAG.sub("", line) for line in end.last[at + 1 : at + 1 + DETAILS]]
    return "".join(f" {line.strip()}" for line in after) if any(line.startswith((" ", "\t")) for line in after) else ""


def find_size_mismatch(ends: Iterable[RankEnd]) -> str:
    """Say that a collective had other sizes on another rank, as gloo tells it, which names nobody: ``op.preamble.length <= op.nbytes. 8000 vs 4000``"""
    found = next((m for end in ends for line in end.last if (m := _OTHER_SIZE.search(line))), None)
    if found is None:
        return ""
    return f"a collective has {found[1]} bytes on one rank and {found[2]} on another, by their dtypes or shapes; {ASK_TORCH} names the rank"


def _list_accusations(ends: Sequence[RankEnd], world: int, victims: Collection[int]) -> dict[int, int]:
    """Who accuses whom: in words of a difference, or as more than half do that name one and the same; who was well until they
    failed is then only spoken of. Of a list of several none is accused.
    """
    lasts = {end.rank: end.last for end in ends}
    said = {rank: last_error_line(last) for rank, last in lasts.items()}
    shared, named = Counter(said.values()), {}  # type: Counter[str], dict[int, int]
    for rank, line in said.items():
        found = {int(other) for other in _OF_RANK.findall("\n".join(lasts[rank]))} or _list_named(line, world)
        found -= {rank} if shared[line] == 1 else set()
        named |= {rank: found.pop()} if len(found) == 1 else {}
    for other, votes in Counter(named.values()).items():
        if 2 * votes > world and other not in victims:
            return {rank: one for rank, one in named.items() if one == other}
    return {
        r: other for r, other in named.items() if _ACCUSES.search(said[r]) and said.get(other) != said[r] and other != r
    }


def _list_named(line: str, world: int) -> set[int]:
    """The ranks that a line names, or the one whose value is odd in a list of all: ``samples per rank: [64, 64, 60, 64]``"""
    for text in _ITEMS.findall(line) if _OF_RANKS.search(line) else ():
        items = [item.strip().removeprefix(f"{rank}: ") for rank, item in enumerate(text.split(","))]
        counts = Counter(items)
        if len(items) == world > 2 and sorted(counts.values()) == [1, world - 1]:
            return {items.index(min(items, key=lambda item: counts[item]))}
    return {int(number) for numbers in _NAMED.findall(line) for number in numbers.split(",") if int(number) < world}


def _last_line(lines: Sequence[str]) -> str:
    return next((line for line in reversed(lines) if line.strip()), "")


def _count_votes(accused: Mapping[int, int], world: int) -> tuple[int, ...]:
    """Who is accused by more than half differs; an accuser whom less than half join differs himself."""
    votes = {other: [rank for rank, one in accused.items() if one == other] for other in accused.values()}
    found = {other for other, by in votes.items() if 2 * len(by) > world}
    found |= {by[0] for other, by in votes.items() if len(by) == 1 and world > 2 and not found}
    return tuple(found) if len(found) == 1 else ()


def _ends_alike(one: RankEnd, other: RankEnd) -> bool:
    """Whether two ranks ended with the same code after the same error or line, but for numbers."""
    pairs = [
        (_NUMBER.sub("0", say(one.last)), _NUMBER.sub("0", say(other.last))) for say in (last_error_line, _last_line)
    ]
    return one.code == other.code and any(own and own == its for own, its in pairs)


def _find_own_error(end: RankEnd) -> str:
    """The error that a rank wrote right before what ended it: it was caught, and told to the others."""
    lines = [
        plain for line in end.last if (plain := RANK_TAG.sub("", line)).strip() and not plain.startswith(CHAIN_BEGINS)
    ]
    starts = [at for at, line in enumerate(lines) if line.startswith("Traceback (most recent call last)")]
    at = starts[-1] if starts and names_error(lines[-1]) else len(lines) - 1
    return lines[at - 1] if at > 0 and names_error(lines[at - 1]) else ""


@lru_cache(maxsize=4096)
def _list_shared_lines(last: tuple[str, ...]) -> list[str]:
    """The last lines of a rank, without its number, times and measured values."""
    return [_FRACTION.sub("0", _OWN_RANK.sub("", line)) for line in last[-LINES:]]


def _was_first_not_finite(end: RankEnd, ends: Sequence[RankEnd], world: int) -> bool:
    """Whether its log shows NaN or infinity where those of most others show a number: ``step 3 loss nan``, ``step 3 loss 2.1``."""
    for line in _list_shared_lines(end.last):
        found = _NOT_FINITE.search(line)
        before = line[: found.start()] if found else ""
        if not before.strip():
            continue
        tails = [_list_shared_lines(one.last) for one in ends if one is not end]
        finite = [
            any(o.startswith(before) and o[len(before) :].lstrip("+-")[:1].isdigit() for o in tail) for tail in tails
        ]
        if 2 * sum(finite) >= world - 1 > 0:
            return True
    return False
