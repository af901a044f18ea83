"""Reading chat messages, as every wing reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LINE_BREAK = "\n"


def text_of(message: Mapping[str, Any], between: str = "") -> str:
    """The text of a message whose content is a string, null, or a list of parts; parts without text count as none.

    Args:
        between: joins the parts. Chat templates write parts without anything between them: so do prompts and
            whatever is compared with them. Readers of the words (judges) pass LINE_BREAK: two parts are no one word.
    """
    content = message.get("content")
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    texts = (part.get("text") for part in content if isinstance(part, dict))
    return between.join(text for text in texts if isinstance(text, str))


def content_of(texts: Sequence[str]) -> str | list[dict[str, Any]]:
    """The content of a message with these texts: parts where there are several."""
    if len(texts) > 1:
        return [{"type": "text", "text": text} for text in texts]
    return "".join(texts)


def messages_in(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request body that was not checked yet."""
    messages = body.get("messages")
    return [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
