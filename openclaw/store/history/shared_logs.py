"""Reads ChatGPT's export (`conversations.json`), and ShareGPT, the format of many data sets."""

from __future__ import annotations

from openclaw.store.history.past import Entry, Line, PastSession, answer_of, chain, past_session, result_of
from openclaw.types import Message

_ROLES = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
}
_ROLES |= {"bing": "assistant", "model": "assistant", "system": "system"}
_TOOLS = ("tool", "function_response", "observation")


def is_chatgpt(value: object) -> bool:
    """Returns whether a JSON value is a conversation of ChatGPT's export: a tree of messages."""
    return isinstance(value, dict) and isinstance(value.get("mapping"), dict)


def read_chatgpt(value: Line, name: str) -> list[PastSession]:
    """Returns the session of a conversation, with all its branches, as a list of one session.

    Args:
        name: id for a conversation without an id.
    """
    entries = [_entry(id_, node) for id_, node in value["mapping"].items() if isinstance(node, dict)]
    newest = value.get("current_node")
    # past_session takes the branch of the last leaf as the newest
    entries.sort(key=lambda entry: entry.id == newest)
    return [past_session("chatgpt", str(value.get("conversation_id") or value.get("id") or name), entries)]


def is_sharegpt(value: object) -> bool:
    """Returns whether a JSON value is a ShareGPT conversation: a list of objects with `from` and `value`."""
    messages = value.get("conversations") if isinstance(value, dict) else None
    return isinstance(messages, list) and any(isinstance(one, dict) and "from" in one for one in messages)


def read_sharegpt(value: Line, name: str) -> list[PastSession]:
    """Returns the session of a conversation as a list of one session.

    Args:
        name: id for a conversation without an id.
    """
    messages: list[Message] = []
    if isinstance(system := value.get("system"), str) and system:
        messages.append({"role": "system", "content": system})
    for number, one in enumerate(value["conversations"]):
        if not isinstance(one, dict) or not isinstance(one.get("value"), str):
            continue
        sender = str(one.get("from")).lower()
        if sender in _TOOLS:
            messages.append(result_of(number, one["value"]))
        elif sender in _ROLES:
            role = _ROLES[sender]
            messages.append(
                answer_of(one["value"], [])
                if role == "assistant"
                else {"role": role, "content": one["value"]}
            )
    return [past_session("sharegpt", str(value.get("id") or name), chain(messages))]


def _entry(id_: str, node: Line) -> Entry:
    message = node.get("message") or {}
    role = (message.get("author") or {}).get("role")
    parts = (message.get("content") or {}).get("parts") or []
    text = "\n".join(part for part in parts if isinstance(part, str))
    converted: Message | None = None
    if role == "assistant" and text and message.get("recipient", "all") == "all":
        converted = answer_of(text, [])
    elif role == "user" and text:
        converted = {"role": "user", "content": text}
    elif role == "system" and text:
        converted = {"role": "system", "content": text}
    parent = node.get("parent")
    return Entry(id=str(id_), parent=str(parent) if parent else None, message=converted, key=str(id_))
