"""Scripted users who talk to the loop and record every answer."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from openclaw_test.loop.chat_client import Answer, ChatClient
from openclaw_test.people.scripted_user import ScriptedUser, Session

MAX_TOKENS = 200
AFTER_FAILURE_S = 0.2


@dataclass(frozen=True)
class Seen:
    """A complete answer that a client received. `begun` and `ended`: seconds on the monotonic clock."""

    completion_id: str
    text: str
    begun: float
    ended: float


@dataclass
class People:
    """All received answers, and the failed requests as (start, failure)."""

    seen: list[Seen] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)


async def converse(
    client: ChatClient,
    session: Session,
    scope: str,
    on_answer: Callable[[float, Answer], None],
    reading_s: float = 0.0,
) -> bool:
    """Runs one session, from its opening to thanks or giving up. `on_answer` gets each answer and the time of its
    request. Returns False if an answer failed, which ends the session. `reading_s`: how long an answer is read."""
    text: str | None = session.opening
    messages: list[dict[str, str]] = []
    while text is not None:
        messages.append({"role": "user", "content": text})
        begun = time.monotonic()
        answer = await client.chat(messages, session_id=scope, max_tokens=MAX_TOKENS)
        on_answer(begun, answer)
        if answer.error is not None:
            return False
        messages.append({"role": "assistant", "content": answer.text})
        text = session.next_message(answer.text)
        if text is not None:
            await asyncio.sleep(reading_s)
    return True


async def talk_until(
    done: asyncio.Event, client: ChatClient, seed: int, people: People, reading_s: float = 0.0
) -> None:
    """Runs one user, session after session, until `done` is set. `reading_s`: how long an answer is read."""

    def on_answer(begun: float, answer: Answer) -> None:
        if answer.error is None and answer.completion_id is not None:
            people.seen.append(Seen(answer.completion_id, answer.text, begun, time.monotonic()))
        else:
            people.failures.append((begun, answer.error or "an answer without an id"))

    user = ScriptedUser(seed)
    while not done.is_set():
        if not await converse(client, user.session(), uuid.uuid4().hex, on_answer, reading_s):
            await asyncio.sleep(AFTER_FAILURE_S)
