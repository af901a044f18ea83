"""Digests of histories, which match a request to the turn that it continues, and the next state of that turn.

Digests ignore what clients change between requests: time stamps, internal context, ids of tool calls, reasoning, whether
content is a text or parts, blank lines, and the system prompt.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from openclaw.clients.registry import CLIENTS
from openclaw.common.messages import LINE_BREAK, picture_parts, text_of
from openclaw.types import Message, Turn

YES = frozenset({"1", "true", "yes", "on"})
_DIGEST_BYTES = 16
KEPT_ANSWERS = 200_000
"""Most answers in all cached transcripts together."""


@dataclass(frozen=True)
class Transcript:
    """Digests of a history.

    Attributes:
        digest: digest of the whole history, hex.
        answers: for each assistant message, last first: the digest of the history up to and including it, and the index
            of the message after it.
    """

    digest: str
    answers: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, messages: Sequence[Message], known: tuple[int, Transcript] | None = None) -> Transcript:
        """Returns the transcript of messages.

        Args:
            known: number and transcript of the first messages, which are then not read again.
        """
        start, beginning = known or (0, cls("", ()))
        digest = bytes.fromhex(beginning.digest)
        answers = []
        scaffold = scaffold_in(messages, start)
        for index, message in enumerate(messages[start:], start):
            if index in scaffold:
                continue
            digest = chained(digest, message)
            if message["role"] == "assistant":
                answers.append((digest.hex(), index + 1))
        return cls(digest.hex(), (*reversed(answers), *beginning.answers))

    def with_answer(self, answer: Message) -> str:
        """Returns the digest (hex) of this history with an answer. A request that continues it has the same digest."""
        return chained(bytes.fromhex(self.digest), answer).hex()


_NONE = Transcript("", ())


class KnownHistories:
    """Cache of the transcripts of recent histories, by their `prefix_keys`, so that only the new messages of a repeated
    history are processed. Thread-safe."""

    def __init__(self, kept: int = KEPT_ANSWERS) -> None:
        self._kept = kept
        self._size = 0
        self._transcripts: OrderedDict[bytes, Transcript] = OrderedDict()
        self._lock = threading.Lock()

    def known(self, keys: Sequence[bytes] | None) -> tuple[int, Transcript]:
        """Returns the longest cached prefix of a history: its number of messages, and their transcript."""
        for count in range(len(keys or ()) - 1, 0, -1):
            assert keys is not None
            with self._lock:
                transcript = self._transcripts.get(keys[count])
                if transcript is not None:
                    self._transcripts.move_to_end(keys[count])
                    return count, transcript
        return 0, _NONE

    def transcript(
        self, messages: Sequence[Message], keys: Sequence[bytes] | None, known: tuple[int, Transcript]
    ) -> Transcript:
        """Returns the transcript of a history, and caches it.

        The transcript without the last message is cached too, because some clients move that message to the end of each
        request.

        Args:
            keys: `prefix_keys` of the history; None if it cannot be cached.
            known: result of `known` for the history.
        """
        last = len(messages) - 1
        if last >= known[0]:
            known = last, Transcript.of(messages[:last], known)
            self._add(keys, *known)
        transcript = Transcript.of(messages, known)
        self._add(keys, len(messages), transcript)
        return transcript

    def _add(self, keys: Sequence[bytes] | None, count: int, transcript: Transcript) -> None:
        if keys is None:
            return
        with self._lock:
            if keys[count] not in self._transcripts:
                self._transcripts[keys[count]] = transcript
                self._size += len(transcript.answers) + 1
            while self._size > self._kept:
                self._size -= len(self._transcripts.popitem(last=False)[1].answers) + 1


@dataclass(frozen=True)
class Parent:
    """The stored turn that a request continues. `start`: index of the request's first message after the answer."""

    turn: Turn
    start: int


def next_state(messages: Sequence[Message], start: int) -> list[Message]:
    """Returns the tool results and user texts from index `start` up to the next answer, without texts that client
    programs write."""
    messages_after = []
    scaffold = scaffold_in(messages, start)
    for index, message in enumerate(messages[start:], start):
        if index in scaffold:
            continue
        if message["role"] == "assistant":
            break
        if message["role"] == "tool":
            messages_after.append({**message, "content": CLIENTS.clean(_shown(message))})
        elif message["role"] == "user":
            writer, text = CLIENTS.read(_shown(message))
            if text and writer != "program":
                role = "tool" if writer == "tool" else "user"
                messages_after.append({**message, "role": role, "content": text})
    return messages_after


def _shown(message: Message) -> str:
    """Returns a message's text for judges; a placeholder if it has only pictures."""
    return text_of(message, LINE_BREAK) or ("[picture]" if picture_parts([message]) else "")


def scaffold_in(messages: Sequence[Message], start: int = 0) -> frozenset[int]:
    """Returns the indices, from `start` on, of messages that are not part of the history: texts that a client inserts
    at another place in each request, and the answers that the client itself writes after them."""
    prefixes, indices = CLIENTS.scaffold, []
    for index, message in enumerate(messages[max(start - 1, 0) :], max(start - 1, 0)):
        if message["role"] == "user" and text_of(message).startswith(prefixes):
            indices.append(index)
            if index + 1 < len(messages) and messages[index + 1]["role"] == "assistant":
                indices.append(index + 1)
    return frozenset(indices)


def same_answer(stored: Message, sent: Message, to_the_letter: bool = False) -> bool:
    """Returns whether a message of a client is a stored answer. What clients change is ignored unless
    `to_the_letter`."""
    comparable = _literal if to_the_letter else _normal
    return comparable(stored) == comparable(sent)


def is_true(value: object) -> bool:
    """Returns whether the value of a header or field is true, 1, yes or on."""
    return value is True or str(value).strip().lower() in YES


def chained(digest: bytes, message: Message) -> bytes:
    """Returns the digest of a history with one more message. It does not change for a message that is ignored."""
    normal = _normal(message)
    if normal is None:
        return digest
    data = json.dumps(normal, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(digest + data, digest_size=_DIGEST_BYTES).digest()


def _literal(message: Message) -> list[Any]:
    return [text_of(message), *(call["function"] for call in message.get("tool_calls") or [])]


def _normal(message: Message) -> list[Any] | None:
    role = message["role"]
    if role in ("system", "developer"):
        return None
    text = _without_blank_lines(CLIENTS.clean(text_of(message)))
    text = "\n".join([text, *(part["sha256"] for part in picture_parts([message]))]).strip("\n")
    if role == "assistant":
        return [role, text, [_call(call) for call in message.get("tool_calls") or []]]
    return [role, text] if text or role == "tool" else None


def _without_blank_lines(text: str) -> str:
    lines = (line.rstrip(" \t\r") for line in text.split("\n"))
    return "\n".join(line for line in lines if line)


def _call(call: Message) -> list[str]:
    function = call["function"]
    arguments = function.get("arguments") or "{}"
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return [function["name"], arguments]
    return [function["name"], json.dumps(arguments, sort_keys=True, ensure_ascii=False)]
