"""Converts logs of other programs to past sessions with their turns.

A log is a tree: an edited message or a retry starts a branch. Every answer is a turn. The path from the root to the
answer is its prompt, and the messages after it, on the path to the newest leaf, are its next state.
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
"""A parsed JSON line or object of a log."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a log.

    Attributes:
        parent: id of the previous entry; None for the first.
        message: None if the line is not a message.
        key: id of the answer; several lines may contain parts of one answer.
        summary: text that replaces all entries before it, except those from `kept_from` on.
        kept_from: id of the first entry that the summary does not replace.
        learn: False for an answer that is only context: an incomplete one, or one copied from another log.
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
    """All messages before an answer, the answer, and its next state; [] for none."""

    messages: list[Message]
    answer: Message
    next_state: list[Message]


@dataclass(frozen=True)
class PastSession:
    """A session of another program.

    Attributes:
        client: name of the program or format.
        left_out: number of answers that are not used as turns, by reason.
    """

    client: str
    id: str
    turns: list[PastTurn]
    left_out: Counter[str] = field(default_factory=Counter)


def chain(messages: Iterable[Message], learn: Callable[[int], bool] = lambda index: True) -> list[Entry]:
    """Returns the entries of a log without branches. `learn`: whether the message at an index may be learned."""
    return [
        Entry(id=str(index), parent=str(index - 1) if index else None, message=one, key=str(index), learn=learn(index))
        for index, one in enumerate(messages)
    ]  # fmt: skip


def past_session(client: str, session_id: str, entries: Sequence[Entry]) -> PastSession:
    """Returns the session of a log. Turns of the newest branch are first; each answer is one turn, also if it is part
    of several branches."""
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
        path = _path_to(leaf, by_id)
        if _last_key(path) in seen:
            continue
        branches.append(list(_turns(_folded(path), results, seen, session.left_out)))
    session.turns.extend(turn for branch in branches for turn in branch)
    return session


def _path_to(leaf: Entry, by_id: dict[str, Entry]) -> list[Entry]:
    """Returns the entries from the root to a leaf. Cycles in broken logs are cut."""
    path, visited = [leaf], {leaf.id}
    while (parent := by_id.get(path[-1].parent or "")) is not None and parent.id not in visited:
        visited.add(parent.id)
        path.append(parent)
    return path[::-1]


def _last_key(path: list[Entry]) -> str | None:
    """Returns the key of the last answer of a path."""
    answers = (entry for entry in reversed(path) if entry.message and entry.message["role"] == "assistant")
    return next((entry.key for entry in answers), None)


def _folded(path: list[Entry]) -> list[Entry]:
    """Returns the entries of a path that have messages, with summaries applied and parts of one answer merged."""
    folded: list[Entry] = []
    for entry in path:
        if entry.summary is not None:
            ids: list[str | None] = [one.id for one in folded]
            kept_index = ids.index(entry.kept_from) if entry.kept_from in ids else len(folded)
            summary = Entry(id=entry.id, parent=None, message={"role": "user", "content": entry.summary})
            folded = [summary, *folded[kept_index:]]
        elif entry.message is not None:
            last = folded[-1] if folded else None
            if last is not None and last.message and _is_same_answer(last, entry):
                folded[-1] = Entry(
                    id=entry.id, parent=None, message=_joined(last.message, entry.message), key=entry.key,
                    learn=last.learn and entry.learn,
                )  # fmt: skip
            else:
                folded.append(entry)
    return folded


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
    """Yields the turns of a path, except answers in `seen`, to which new ones are added.

    Args:
        results: tool messages of all branches by call id. Those of calls without a result on this path are added.
    """
    messages: list[Message] = []
    answers: list[tuple[int, Entry]] = []
    on_path = [entry.message for entry in entries if entry.message is not None]
    answered_calls = {message["tool_call_id"] for message in on_path if message["role"] == "tool"}
    for entry in entries:
        assert entry.message is not None  # ensured by _folded
        if entry.message["role"] == "assistant":
            answers.append((len(messages), entry))
        messages.append(entry.message)
        call_ids = [call["id"] for call in entry.message.get("tool_calls") or []]
        messages += [results[id_] for id_ in call_ids if id_ not in answered_calls and id_ in results]
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
    """Returns the reason why an answer is not used as a turn; None if it is used."""
    if not entry.learn:
        return "context_only"
    if not (text_of(answer).strip() or answer.get("tool_calls")):
        return "empty"
    if not any(message["role"] == "user" for message in before):
        return "no_question"
    return "side" if CLIENTS.is_side(before) else None


def tool_call(id_: object, name: object, arguments: object) -> Message:
    """Returns a tool call in OpenAI's format. `arguments` is JSON text or an object."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {}, ensure_ascii=False)
    return {"id": str(id_), "type": "function", "function": {"name": str(name), "arguments": text or "{}"}}


def answer_of(text: str, calls: list[Message]) -> Message:
    """Returns an assistant message in OpenAI's format."""
    return {"role": "assistant", "content": text} | ({"tool_calls": calls} if calls else {})


def result_of(id_: object, text: str) -> Message:
    """Returns a tool message in OpenAI's format, for the call `id_`."""
    return {"role": "tool", "tool_call_id": str(id_), "content": text}
