"""Find which of many literals occur in a text in any letter case, and where, so that only those lines are examined further.

Lines of a log repeat: without digits, a million lines of a training run have few shapes. Which literals a shape may contain
is found once, by its words, and remembered; a line whose shape has none is not looked at again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import accumulate
from threading import Lock

Hits = list[tuple[int, int]]


MAX_REMEMBERED_BYTES = 4 << 20
"""Bytes of shapes that are remembered, with their words."""

PIECE, FOLLOWING = 3, 2
"""Letters by which stems are looked up in a word, and bytes after a stem by which literals are."""

_DIGITS = b"0123456789"
_LOWER = bytes(range(256)).lower().replace(b"\r", b"\n")  # a progress bar ends with \r
_WORDS = bytes(code if 97 <= code <= 122 or code >= 128 else 32 for code in range(256))


class LiteralSearch:
    """Finds literals. A literal is looked for where its stem, its longest word, is part of a word of a line."""

    def __init__(self, literals: Sequence[str]):
        self.literals = [literal.encode().lower() for literal in literals]
        self._bare = [literal.translate(None, _DIGITS) for literal in self.literals]
        self._stems: dict[bytes, set[bytes]] = {}  # by their first letters
        self._literals: dict[
            bytes, list[tuple[int, int]]
        ] = {}  # by stem and what follows it: number, offset of the stem
        self._wordless: list[int] = []
        self._words: dict[bytes, list[bytes]] = {}  # of the log, with the stems in each
        self._shapes: set[bytes] = set()
        self._shapes_with_literals: dict[bytes, set[int]] = {}
        self._remembered_bytes = 0
        self._lock = Lock()
        self._choose_stems()

    def _choose_stems(self) -> None:
        for number, literal in enumerate(self._bare):
            stem = max(literal.translate(_WORDS).split(), key=len, default=b"")
            if len(stem) < PIECE:
                self._wordless.append(number)
                continue
            self._stems.setdefault(stem[:PIECE], set()).add(stem)
            at = literal.index(stem)
            self._literals.setdefault(literal[at : at + len(stem) + FOLLOWING], []).append((number, at))

    def find_literals(self, data: bytes, ignored: Collection[int] = ()) -> Hits:
        """Return (end offset, literal index) in order of the text, without the ``ignored`` literals."""
        shapes = data.translate(_LOWER, _DIGITS).split(b"\n")
        with self._lock:
            present = self._literals_of_shapes(set(shapes))
        wanted = {shape: rest for shape, numbers in present.items() if (rest := numbers.difference(ignored))}
        if not wanted:
            return []
        return sorted(self._find_in_lines(data.translate(_LOWER).split(b"\n"), shapes, wanted))

    def _literals_of_shapes(self, shapes: set[bytes]) -> dict[bytes, set[int]]:
        if self._remembered_bytes > MAX_REMEMBERED_BYTES:
            self._words, self._shapes, self._shapes_with_literals, self._remembered_bytes = {}, set(), {}, 0
        if fresh := shapes.difference(self._shapes):
            self._learn_shapes(fresh)
        return {shape: self._shapes_with_literals[shape] for shape in shapes.intersection(self._shapes_with_literals)}

    def _find_in_lines(
        self, lines: Sequence[bytes], shapes: Sequence[bytes], wanted: dict[bytes, set[int]]
    ) -> Iterator[tuple[int, int]]:
        starts = list(accumulate(map(len, lines), initial=0))
        for i in [i for i, shape in enumerate(shapes) if shape in wanted]:
            for number in wanted[shapes[i]]:
                literal = self.literals[number]
                at = lines[i].find(literal)
                while at >= 0:
                    yield starts[i] + i + at + len(literal), number
                    at = lines[i].find(literal, at + 1)

    def _learn_shapes(self, fresh: set[bytes]) -> None:
        """Find which literals a line of each shape may contain. Digits count in neither."""
        joined = b"\n".join(fresh)
        self._remembered_bytes += len(joined)
        known = self._learn_words(set(joined.translate(_WORDS).split()))
        wordless = [n for n in self._wordless if self._bare[n] in joined]
        self._shapes |= fresh
        for shape in fresh:
            words = known.intersection(shape.translate(_WORDS).split())
            stems = {stem for word in words for stem in self._words[word]}
            found = {number for stem in stems for number in self._literals_at_stem(shape, stem)}
            found.update(n for n in wordless if self._bare[n] in shape)
            if found:
                self._shapes_with_literals[shape] = found

    def _literals_at_stem(self, shape: bytes, stem: bytes) -> Iterator[int]:
        at = shape.find(stem)
        while at >= 0:
            for end in range(at + len(stem), at + len(stem) + FOLLOWING + 1):
                for number, offset in self._literals.get(shape[at:end], ()):
                    if offset <= at and shape.startswith(self._bare[number], at - offset):
                        yield number
            at = shape.find(stem, at + 1)

    def _learn_words(self, words: set[bytes]) -> set[bytes]:
        """Return those of the words that contain a stem."""
        for word in words.difference(self._words):
            pieces = {word[i : i + PIECE] for i in range(len(word) - PIECE + 1)} & self._stems.keys()
            self._words[word] = [stem for piece in pieces for stem in self._stems[piece] if stem in word]
        return {word for word in words if self._words[word]}
