"""Placeholders for items that a model cannot read, so that one such item does not end a conversation."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

log = logging.getLogger(__name__)

_ENDS = " left out: this model reads text]"
_NOTE = re.compile(r"\[[\w. -]{1,60}" + re.escape(_ENDS) + r"\s*")
_MAX_KIND_CHARACTERS = 60


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
