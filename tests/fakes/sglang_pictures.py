"""The expansion of ids with images in SGLang 0.5.23 (`BaseMultimodalProcessor._expand_input_ids`).

`claw_lab.long.sglang_pictures` checks the same with an installed SGLang.
"""

from __future__ import annotations

from collections.abc import Sequence


def expanded(ids: Sequence[int], counts: Sequence[int], mark: int) -> list[int]:
    """Repeats each mark for each of its image's tokens, and keeps other ids. Raises ValueError if the numbers of
    marks and images differ: SGLang would decode the ids and tokenize their text."""
    if list(ids).count(mark) != len(counts):
        raise ValueError("not one mark for each picture")
    left = iter(counts)
    return [one for token in ids for one in ([mark] * next(left) if token == mark else [token])]
