"""Token ids of prompts with pictures, as SGLang and the embedded engine expect them: one mark (a
placeholder token) for each picture.

The engine repeats a mark for every token of its picture, and leaves all other ids unchanged. If the numbers of marks and
pictures differ, SGLang decodes the prompt and tokenizes it again, which changes sampled ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

VISION_MODEL_TYPES = ("qwen3_vl",)
"""model_type of models whose pictures are served and trained (slime/slime/vision/README.md)."""


def with_single_marks(ids: Sequence[int], places: Iterable[tuple[int, int]]) -> list[int]:
    """Returns the ids with one mark for each picture instead of all its tokens.

    Args:
        ids: [T], a prompt whose pictures have a mark for each of their tokens.
        places: (index of the first token, number of tokens) of each picture; at least one.

    Raises:
        ValueError: the ids contain a mark that does not belong to a picture, such as a sampled one.
    """
    ordered = sorted(places)
    shortened, position = list[int](), 0
    for start, length in ordered:
        shortened += ids[position : start + 1]
        position = start + length
    shortened += ids[position:]
    marks = shortened.count(ids[ordered[0][0]])
    if marks != len(ordered):
        raise ValueError(f"the prompt has {marks} image marks for {len(ordered)} images")
    return shortened
