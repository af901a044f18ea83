"""Reads chat messages: texts, pictures, placeholders for items that a model cannot read, and cache keys.

Clients send the bytes of a picture in the message. The gateway takes them out: the message keeps a `PicturePart` with
hash and size, so that histories are compared, stored and rendered without the bytes. A placeholder replaces any other
item, so that one such item does not end a conversation.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import orjson

log = logging.getLogger(__name__)

LINE_BREAK = "\n"
PICTURE = "picture"
"""Type of the part that replaces a picture. Clients' parts of this type are not pictures."""
WITH_PICTURES = ("user", "tool")
"""Roles whose messages may contain pictures."""

_ENDS = " left out: this model reads text]"
_NOTE = re.compile(r"\[[\w. -]{1,60}" + re.escape(_ENDS) + r"\s*")
_MAX_KIND_CHARACTERS = 60
_DIGEST_BYTES = 16


def text_of(message: Mapping[str, object], between: str = "") -> str:
    """Returns the text of a message whose content is a string, null, or a list of parts; parts without text are
    skipped.

    Args:
        between: separator of the parts. The default is that of chat templates; prompts, and texts that are compared
            with them, use it. Judges pass LINE_BREAK, which keeps the words of two parts apart.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return between.join(text for text in texts if isinstance(text, str))


def user_texts_in(messages: Sequence[Mapping[str, object]]) -> list[str]:
    """Returns the texts of the user's messages, oldest first."""
    return [text_of(message, LINE_BREAK) for message in messages if message.get("role") == "user"]


def last_user_text(messages: Sequence[Mapping[str, object]]) -> str:
    """Returns the text of the user's newest message; "" if there is none."""
    newest = next((message for message in reversed(messages) if message.get("role") == "user"), None)
    return text_of(newest, LINE_BREAK) if newest else ""


def content_of(parts: Sequence[str | dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Returns message content with these texts and pictures: a list of parts unless there is only one text."""
    texts = [part for part in parts if isinstance(part, str)]
    if len(parts) > 1 or not texts:
        return [{"type": "text", "text": part} if isinstance(part, str) else part for part in parts] or ""
    return texts[0]


def messages_in(body: Mapping[str, object]) -> list[dict[str, Any]]:
    """Returns the messages of an unvalidated request body."""
    messages = body.get("messages")
    return [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []


def prefix_keys(messages: Sequence[Mapping[str, Any]]) -> list[bytes] | None:
    """Returns keys: [i] identifies the first i messages, as sent. Returns None if JSON cannot represent a message."""
    key = b""
    keys = [key]
    try:
        for message in messages:
            key = hashlib.blake2b(orjson.dumps(message), digest_size=_DIGEST_BYTES, key=key).digest()
            keys.append(key)
    except (TypeError, ValueError):
        return None
    return keys


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


def picture_parts(messages: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns the picture parts of messages as the gateway keeps them, in order."""
    return [part for message in messages for part in _parts(message) if part.get("type") == PICTURE]


def with_picture_parts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Returns stored messages with their picture parts as `PicturePart`, as if a client had sent the pictures again."""
    return [
        {**message, "content": _content_with_picture_parts(message.get("content"))} for message in messages
    ]


def _content_with_picture_parts(content: object) -> object:
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


def note(kind: object) -> str:
    """Returns the placeholder for an item of this kind; logs each kind once."""
    shown = re.sub(r"[^\w. -]", "", str(kind))[:_MAX_KIND_CHARACTERS] or "item"
    _warn_left_out(shown)
    return f"[{shown}{_ENDS}"


def without_notes(text: str) -> str:
    """Returns a text without placeholders."""
    return _NOTE.sub("", text) if _ENDS in text else text


def part_text(part: Mapping[str, Any]) -> str:
    """Returns the text of a non-text part of any API: a document's text, else a placeholder."""
    kind, source = part.get("type"), part.get("source")
    if kind == "refusal" and isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    if isinstance(part.get("text"), str):
        return str(part["text"])
    contents: list[object] = []
    if kind == "document" and isinstance(source, dict):
        contents = [source.get("data")] if source.get("type") == "text" else _texts(source.get("content"))
    elif kind == "search_result":
        contents = [source, *_texts(part.get("content"))]
    texts = [text for text in [part.get("title"), *contents] if isinstance(text, str) and text]
    return "\n".join(texts) if any(isinstance(text, str) for text in contents) else note(kind)


def _texts(content: object) -> list[object]:
    if not isinstance(content, list):
        return [content]
    return [block.get("text") for block in content if isinstance(block, dict)]


def as_json(value: object) -> str:
    """Returns a value as JSON text; text is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=100)
def warn_tool_left_out(kind: str) -> None:
    """Warns once about a tool that a client declares but does not run itself."""
    log.warning(
        "a client offers tools of type %r, which this server cannot run; the model does not see them", kind
    )


@lru_cache(maxsize=100)
def _warn_left_out(kind: str) -> None:
    log.warning("a client sends %r, which this model cannot read: a placeholder replaces it", kind)
