"""The fields of an engine request for a prompt with pictures: SGLang's, which the embedded engine takes too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw_base.image_marks import with_single_marks
from openclaw.errors import ClientError


@dataclass(frozen=True)
class SentPicture:
    """A picture of a prompt: the tokens [start, start + length) stand for it; `url`: its data URL."""

    start: int
    length: int
    url: str


def prompt_fields(ids: list[int], pictures: Sequence[SentPicture]) -> dict[str, Any]:
    """Returns the fields for a prompt's ids [T]: `input_ids` with one mark for each picture, and `image_data`.

    Raises:
        ClientError: the model sampled a mark earlier in this conversation. An engine would take it for a picture.
    """
    if not pictures:
        return {"input_ids": ids}
    try:
        marked = with_single_marks(ids, [(picture.start, picture.length) for picture in pictures])
    except ValueError as error:
        raise ClientError(
            "messages: an earlier answer contains the token that marks a picture; begin a new conversation",
            "messages",
        ) from error
    return {"input_ids": marked, "image_data": [picture.url for picture in pictures]}
