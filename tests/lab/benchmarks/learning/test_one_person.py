"""The benchmark's person: complains with given words until a reply satisfies, thanks, and is counted."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from claw_lab.benchmarks.learning.one_person import MOST_COMPLAINTS, Course, Person
from openclaw_test.loop.chat_client import Answer
from openclaw_test.people.everyday_talk import THANKS, WRITERS, read_talk

LONG, SHORT = "word " * 90, "It rained. That is all."


@dataclass
class Scripted:
    """A client with scripted answers, which records its requests."""

    texts: list[str]
    asked: list[list[dict[str, Any]]] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    async def chat(self, messages: list[dict[str, Any]], *, session_id: str, max_tokens: int) -> Answer:
        self.asked.append(list(messages))
        text = self.texts.pop(0)
        error = "broken" if text == "broken" else None
        return Answer(text, finish_reason="stop", error=error)

    async def end_session(self, session_id: str) -> None:
        self.ended.append(session_id)


def person() -> Person:
    return Person("brief", 160, random.Random(1), read_talk("brief"), read_talk(THANKS))


async def test_a_person_complains_until_a_reply_pleases_and_then_gives_thanks() -> None:
    client = Scripted([LONG, SHORT, "You are welcome."])
    assert not await person().session(client, "Why does it rain?")
    said = [messages[-1]["content"] for messages in client.asked]
    assert said[0] == "Why does it rain?"
    assert said[1] in {line.text for line in read_talk("brief")}
    assert said[2] in {line.text for line in read_talk(THANKS)}
    assert len(client.ended) == 1


async def test_a_person_stops_after_several_complaints() -> None:
    client = Scripted([LONG] * (MOST_COMPLAINTS + 2))
    assert not await person().session(client, "Why does it rain?")
    assert len(client.asked) == MOST_COMPLAINTS + 2


@pytest.mark.parametrize("refusal", ["I'm sorry, but I can't assist with that.", "As an AI, I cannot."])
async def test_a_short_refusal_pleases_nobody_and_gets_no_thanks(refusal: str) -> None:
    client = Scripted([refusal])
    assert not await person().session(client, "Why does it rain?")
    assert len(client.asked) == len(client.ended) == 1


async def test_a_failed_request_ends_the_benchmark() -> None:
    with pytest.raises(RuntimeError, match="broken"):
        await person().session(Scripted(["broken"]), "Why?")


def test_a_preference_is_learned_after_three_satisfying_first_replies_in_a_row() -> None:
    assert Course([False, True, True, False, True, True, True]).sessions_until_pleasing() == 7
    assert Course([True, True, False, True]).sessions_until_pleasing() is None


def test_each_preference_is_worded_by_eight_people() -> None:
    for kind in ("brief", "prose", "greeting", "thanks"):
        assert {line.writer for line in read_talk(kind)} == set(WRITERS)
        assert all(sum(line.writer == who for line in read_talk(kind)) >= 7 for who in WRITERS)
    assert len(read_talk("question")) >= 160
