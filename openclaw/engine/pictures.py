"""The fields of an engine request for a prompt with pictures: SGLang's, which the embedded engine takes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw.errors import ClientError


@dataclass(frozen=True)
class SentPicture:
    """A picture of a prompt: the tokens [start, start + length) stand for it; `url`: its data URL."""

    start: int
    length: int
    url: str


def one_mark_each(ids: list[int], pictures: Sequence[SentPicture]) -> dict[str, Any]:
    """Returns the fields for a prompt's ids [T]: `input_ids` with one mark for each picture, and `image_data`. The
    engine repeats a mark for every token of its picture.

    Raises:
        ClientError: the model sampled a mark earlier in this conversation. An engine would take it for a picture.
    """
    if not pictures:
        return {"input_ids": ids}
    shortened, at = list[int](), 0
    for picture in pictures:
        shortened += ids[at : picture.start + 1]
        at = picture.start + picture.length
    shortened += ids[at:]
    if shortened.count(ids[pictures[0].start]) != len(pictures):
        message = (
            "messages: an earlier answer contains the token that marks a picture; begin a new conversation"
        )
        raise ClientError(message, "messages")
    return {"input_ids": shortened, "image_data": [picture.url for picture in pictures]}
