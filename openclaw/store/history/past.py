"""A past conversation and its turns.

Logs are trees: an edited message or a retry starts a branch. Every answer is a turn; the path to it is its prompt,
and the path after it leads to the newest message.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw.clients.registry import CLIENTS
from openclaw.common.messages import text_of
from openclaw.sessions.transcript import next_state
from openclaw.types import Message

Line = dict[str, Any]
"""An object of a log in its original form."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a log.

    Attributes:
        message: None if the line is not a message.
        key: equal for the parts of one answer that was written as several lines.
        summary: replaces everything before it, except entries after `kept_from`.
        learn: False for an answer that is only context (cut off, or copied from another log).
    """

    id: str
    parent: str | None
    message: Message | None = None
    key: str = ""
    summary: str | None = None
    kept_from: str | None = None
    learn: bool = True


@dataclass(frozen=True)
class PastTurn:
    """A prompt (including all messages before it), its answer, and its next state ([]: none)."""

    messages: list[Message]
    answer: Message
    next_state: list[Message]


@dataclass(frozen=True)
class PastSession:
    """A session; `left_out` counts answers that are not used as turns, by reason."""

    client: str
    id: str
    turns: list[PastTurn]
    left_out: Counter[str] = field(default_factory=Counter)


def chain(messages: Iterable[Message], learn: Callable[[int], bool] = lambda index: True) -> list[Entry]:
    """Returns the entries of a linear log."""
    return [
        Entry(id=str(index), parent=str(index - 1) if index else None, message=one, key=str(index), learn=learn(index))
        for index, one in enumerate(messages)
    ]  # fmt: skip


def past_session(client: str, session_id: str, entries: Sequence[Entry]) -> PastSession:
    """Returns the turns of a log, those of the newest branch first."""
    by_id = {entry.id: entry for entry in entries}
    results = {
        entry.message["tool_call_id"]: entry.message
        for entry in entries
        if entry.message is not None and entry.message["role"] == "tool"
    }
    parents = {entry.parent for entry in entries}
    session = PastSession(client, session_id, [])
    seen: set[str] = set()
    branches: list[list[PastTurn]] = []
    for leaf in reversed([entry for entry in entries if entry.id not in parents]):
        way = _way_to(leaf, by_id)
        if _last_key(way) in seen:
            continue
        branches.append(list(_turns(_folded(way), results, seen, session.left_out)))
    session.turns.extend(turn for branch in branches for turn in branch)
    return session


def _way_to(leaf: Entry, by_id: dict[str, Entry]) -> list[Entry]:
    way, met = [leaf], {leaf.id}
    while (parent := by_id.get(way[-1].parent or "")) is not None and parent.id not in met:
        met.add(parent.id)
        way.append(parent)
    return way[::-1]


def _last_key(way: list[Entry]) -> str | None:
    answers = (entry for entry in reversed(way) if entry.message and entry.message["role"] == "assistant")
    return next((entry.key for entry in answers), None)


def _folded(way: list[Entry]) -> list[Entry]:
    """Returns the entries with messages: summaries replace the entries that they summarise, and parts of one answer
    are merged."""
    entries_left: list[Entry] = []
    for entry in way:
        if entry.summary is not None:
            ids: list[str | None] = [one.id for one in entries_left]
            kept = ids.index(entry.kept_from) if entry.kept_from in ids else len(entries_left)
            stands = Entry(id=entry.id, parent=None, message={"role": "user", "content": entry.summary})
            entries_left = [stands, *entries_left[kept:]]
        elif entry.message is not None:
            last = entries_left[-1] if entries_left else None
            if last is not None and last.message and _is_same_answer(last, entry):
                entries_left[-1] = Entry(
                    id=entry.id, parent=None, message=_joined(last.message, entry.message), key=entry.key,
                    learn=last.learn and entry.learn,
                )  # fmt: skip
            else:
                entries_left.append(entry)
    return entries_left


def _is_same_answer(last: Entry, entry: Entry) -> bool:
    roles = {one.message["role"] for one in (last, entry) if one.message}
    return roles == {"assistant"} and last.key == entry.key


def _joined(first: Message, second: Message) -> Message:
    texts = [text for one in (first, second) if (text := text_of(one))]
    calls = [*(first.get("tool_calls") or []), *(second.get("tool_calls") or [])]
    return {"role": "assistant", "content": "\n\n".join(texts)} | ({"tool_calls": calls} if calls else {})


def _turns(
    entries: list[Entry], results: dict[str, Message], seen: set[str], left_out: Counter[str]
) -> Iterable[PastTurn]:
    messages: list[Message] = []
    answers: list[tuple[int, Entry]] = []
    own_messages = [entry.message for entry in entries if entry.message is not None]
    answered_calls = {message["tool_call_id"] for message in own_messages if message["role"] == "tool"}
    for entry in entries:
        assert entry.message is not None  # merged by _folded
        if entry.message["role"] == "assistant":
            answers.append((len(messages), entry))
        messages.append(entry.message)
        called = [call["id"] for call in entry.message.get("tool_calls") or []]
        messages += [results[id_] for id_ in called if id_ not in answered_calls and id_ in results]
    for index, entry in answers:
        if entry.key in seen:
            continue
        seen.add(entry.key)
        answer, before = messages[index], messages[:index]
        if reason := _not_a_turn(entry, before, answer):
            left_out[reason] += 1
        else:
            yield PastTurn(before, answer, next_state(messages, index + 1))


def _not_a_turn(entry: Entry, before: list[Message], answer: Message) -> str | None:
    if not entry.learn:
        return "context_only"
    if not (text_of(answer).strip() or answer.get("tool_calls")):
        return "empty"
    if not any(message["role"] == "user" for message in before):
        return "no_question"
    return "side" if CLIENTS.is_side(before) else None


def tool_call(id_: object, name: object, arguments: object) -> Message:
    """Returns a tool call in the gateway's format; `arguments` is JSON text or an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": str(id_), "type": "function", "function": {"name": str(name), "arguments": text or "{}"}}


def answer_of(text: str, calls: list[Message]) -> Message:
    """Returns an assistant message."""
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def result_of(id_: object, text: str) -> Message:
    """Returns the message with a tool's result."""
    return {"role": "tool", "tool_call_id": str(id_), "content": text}
