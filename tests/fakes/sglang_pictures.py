"""What SGLang 0.5.23 makes of ids with pictures (`BaseMultimodalProcessor._expand_input_ids`), by its contract.

`claw_lab.long.sglang_pictures` tries the same with the function of an installed SGLang.
"""

from __future__ import annotations

from collections.abc import Sequence


def expanded(ids: Sequence[int], counts: Sequence[int], mark: int) -> list[int]:
    """Each mark becomes as many as its picture has tokens, and other ids stay. Raises ValueError for other marks than
    pictures: SGLang would decode the ids and tokenize their text."""
    if list(ids).count(mark) != len(counts):
        raise ValueError("not one mark for each picture")
    left = iter(counts)
    return [one for token in ids for one in ([mark] * next(left) if token == mark else [token])]
