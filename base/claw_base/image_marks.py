"""How SGLang and the embedded engine take a prompt with pictures: its ids with one mark for each picture.

The engine repeats a mark for every token of its picture, and leaves all other ids unchanged. If the numbers of marks and
pictures differ, SGLang decodes the prompt and tokenizes it again, which changes sampled ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

SEEING = ("qwen3_vl",)
"""model_type of models whose pictures are served and trained (slime/slime/vision/README.md)."""


def one_mark_each(ids: Sequence[int], places: Iterable[tuple[int, int]]) -> list[int]:
    """Returns the ids with one mark instead of all tokens of a picture.

    Args:
        ids: [T], a prompt whose pictures have a mark for each of their tokens.
        places: (index of the first token, number of tokens) of each picture; at least one.

    Raises:
        ValueError: the ids contain a mark that does not belong to a picture, such as a sampled one.
    """
    ordered = sorted(places)
    shortened, at = list[int](), 0
    for start, length in ordered:
        shortened += ids[at : start + 1]
        at = start + length
    shortened += ids[at:]
    marks = shortened.count(ids[ordered[0][0]])
    if marks != len(ordered):
        raise ValueError(f"a prompt has {marks} marks of images for {len(ordered)} images")
    return shortened
