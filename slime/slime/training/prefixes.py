"""Finds common prefixes of token sequences; does not need torch.

Turns of one session, answers to one prompt, and hints of one turn share prefixes. In sorted order, sequences with a
common prefix are neighbours, so the prefix lengths of neighbours determine those of any set.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

WORTH = 32
"""A common prefix is shared only if it has at least 1 / WORTH of the tokens after it, because a branch needs
additional calls and copies."""

KEYS = 4
"""Attention copies the keys before each branch. This many keys take at most as much memory as one token."""


@dataclass
class Node:
    """Tokens [start, end) of the sequence `of`, shared by all sequences in `members` that are long enough."""

    of: int
    start: int
    end: int
    members: list[int]
    children: list[Node] = field(default_factory=list)

    def preorder(self) -> list[Node]:
        """Returns this node and its descendants, each before its children."""
        nodes, left = [], [self]
        while left:
            node = left.pop()
            nodes.append(node)
            left += reversed(node.children)
        return nodes


@dataclass(frozen=True)
class Size:
    """The size of sequences that run together.

    Attributes:
        tokens: tokens that the model processes.
        keys: sum over all pieces of the keys that they attend to.
        longest: tokens of the longest sequence.
        targets: predicted tokens.
    """

    tokens: int
    keys: int
    longest: int
    targets: int

    @property
    def load(self) -> int:
        """Returns the memory use of a micro-batch in tokens, including rows of logits and copied keys."""
        return max(self.tokens, self.targets, -(-self.keys // KEYS))


class Prefixes:
    """The common prefixes of sequences.

    Args:
        sequences: token ids, or any whole numbers from 0 that are equal if the tokens are.
        targets: number of predicted tokens of each sequence (default: none).
    """

    def __init__(self, sequences: Sequence[Sequence[int]], targets: Sequence[int] | None = None) -> None:
        keys = [np.asarray(sequence, dtype=">u8") for sequence in sequences]
        self._lengths = [len(key) for key in keys]
        self._targets = targets or [0] * len(keys)
        order = sorted(range(len(keys)), key=lambda i: keys[i].tobytes())
        self._place = {i: place for place, i in enumerate(order)}
        self._common = [_common(keys[a], keys[b]) for a, b in pairwise(order)]

    def trees(self, members: Sequence[int]) -> list[Node]:
        """Returns the prefix trees of these sequences. Roots and children are ordered by their first members."""
        order = sorted(members, key=self._place.__getitem__)
        common = [min(self._common[self._place[a] : self._place[b]]) for a, b in pairwise(order)]
        roots: list[Node] = []
        ranges = [(0, len(order), 0, roots)] if order else []
        while ranges:
            low, high, start, siblings = ranges.pop()
            end, ended, cuts = self._fork(order, common, low, high)
            if cuts:
                rest = max(self._lengths[i] for i in order[low:high]) - end
                if (end - start) * WORTH < rest:
                    groups = pairwise([low, *cuts, high])
                    ranges += [(a, b, start, siblings) for a, b in groups]
                    continue
            node = Node(order[high - 1], start, end, order[low:high])
            siblings.append(node)
            groups = pairwise([ended, *cuts, high]) if cuts else pairwise([])
            ranges += [(a, b, end, node.children) for a, b in groups]
        for siblings in (roots, *(node.children for root in roots for node in root.preorder())):
            siblings.sort(key=lambda node: min(node.members))
        return roots

    def _fork(
        self, order: Sequence[int], common: Sequence[int], low: int, high: int
    ) -> tuple[int, int, list[int]]:
        """Finds the first branching point of the sequences [low, high) of an order.

        Returns the common length, the first sequence that is longer, and the starts of the branches. There
        are no branches if all others are prefixes of one sequence.
        """
        first = low
        while first + 1 < high:
            end = min(common[first : high - 1])
            if self._lengths[order[first]] > end:
                return end, first, [j + 1 for j in range(first, high - 1) if common[j] == end]
            first += 1
        return self._lengths[order[first]], first, []

    def size(self, members: Sequence[int]) -> Size:
        """Returns the size of these sequences."""
        nodes = [node for root in self.trees(members) for node in root.preorder()]
        return Size(
            tokens=sum(node.end - node.start for node in nodes),
            keys=sum(node.end for node in nodes),
            longest=max((self._lengths[i] for i in members), default=0),
            targets=sum(self._targets[i] for i in members),
        )

    def parts(self, members: Sequence[int], most: int) -> list[list[int]]:
        """Splits the sequences into parts with a load of at most `most`, keeping common prefixes together.

        A single sequence may exceed `most`. A sequence precedes its own prefixes, which then add no tokens.
        """
        parts = []
        for root in self.trees(members):
            left = root.members[::-1]
            while left:
                counts = range(2, len(left) + 1)
                count = 1 + bisect_left(counts, True, key=lambda n: _exceeds(self.size(left[:n]), most))
                parts.append(left[:count])
                left = left[count:]
        return parts


def _exceeds(size: Size, most: int) -> bool:
    """Returns whether a part is too large.

    A single long sequence may exceed the limit of tokens, but not that of targets.
    """
    return size.load > max(most, size.longest) or size.targets > most


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """Returns the length of the common prefix of two sequences."""
    length = min(len(a), len(b))
    differ = a[:length] != b[:length]
    return int(differ.argmax()) if differ.any() else length
