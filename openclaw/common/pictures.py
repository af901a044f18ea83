"""Pictures in messages: the parts that clients send, and the part that replaces each.

Clients send the bytes of a picture in the message. The gateway takes them out: the message keeps a `PicturePart` with
hash and size, so that histories are compared, stored and rendered without the bytes.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from openclaw.common.notes import part_text

PICTURE = "picture"
"""Type of the part that replaces a picture. Clients' parts of this type are not pictures."""
WITH_PICTURES = ("user", "tool")
"""Roles whose messages may contain pictures."""


@dataclass(frozen=True)
class Picture:
    """The bytes of a picture, as its client sent them. `media_type`: such as image/png."""

    data: bytes
    media_type: str

    def url(self) -> str:
        """Returns the picture as a data URL."""
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode()}"

    @classmethod
    def of_url(cls, url: str) -> Picture:
        """Returns the picture of a data URL. Raises ValueError for another text."""
        head, _, data = url.partition(",")
        if not (head.startswith("data:image/") and head.endswith(";base64")):
            raise ValueError("not a data URL of a picture")
        return cls(base64.b64decode(data, validate=True), head.removeprefix("data:").removesuffix(";base64"))


class PicturePart(dict[str, Any]):
    """The part of a message that stands for a picture: `sha256` of its bytes, `media_type`, and `width` and `height` in
    pixels. Only the gateway creates it, so that a client cannot refer to another client's picture."""

    def __init__(self, sha256: str, media_type: str, width: int, height: int) -> None:
        super().__init__(type=PICTURE, sha256=sha256, media_type=media_type, width=width, height=height)


def picture_or_text(part: dict[str, Any]) -> dict[str, Any] | str:
    """Returns a client's part unchanged if it is a picture, else its text."""
    return part_text(part) if picture_url(part) is None else part


def picture_url(part: Mapping[str, Any]) -> str | None:
    """Returns the URL of a client's picture in any dialect: `image_url` of Chat, `input_image` and `computer_screenshot`
    of Responses, `image` of Messages. Returns None for another part, "" for a picture without bytes and URL, such as a
    file id."""
    kind = part.get("type")
    if kind in ("image_url", "input_image", "computer_screenshot"):
        image_url = part.get("image_url")
        url = image_url.get("url") if isinstance(image_url, Mapping) else image_url
        return url if isinstance(url, str) else ""
    source = part.get("source")
    if kind != "image" or not isinstance(source, Mapping):
        return None
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return str(source.get("url") or "")


def parts_of(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the picture parts of messages as the gateway keeps them, in order."""
    return [part for message in messages for part in _parts(message) if part.get("type") == PICTURE]


def stored_parts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns stored messages with their picture parts as `PicturePart`, as if a client had sent the pictures again."""
    return [{**message, "content": _with_picture_parts(message.get("content"))} for message in messages]


def _with_picture_parts(content: object) -> object:
    if not isinstance(content, list):
        return content
    return [
        PicturePart(*(part[name] for name in ("sha256", "media_type", "width", "height")))
        if isinstance(part, dict) and part.get("type") == PICTURE
        else part
        for part in content
    ]


def _parts(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
