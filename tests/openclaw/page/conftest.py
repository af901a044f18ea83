"""A gateway with a recorded conversation, and its page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from openclaw.types import Judgement, SampleDraft, Vote
from tests.fakes.fixtures import JudgeTurn, Talk, Visit
from tests.fakes.running_gateway import RunningGateway

HOSTILE = "<script>alert(1)</script>\" onmouseover='x' </div>{{ 7*7 }} \u202egnp.exe \x00\x1b[31m"


@pytest.fixture
def visit(gateway: RunningGateway) -> Iterator[Visit]:
    """f(path, **query): the page's answer to a browser on this machine."""
    with httpx.Client(base_url=gateway.url, timeout=20) as client:
        yield lambda path, **query: client.get(path, params=query or None)


@pytest.fixture
def talk(gateway: RunningGateway) -> Talk:
    """f(texts, answer, session): returns the completion ids of a conversation, whose first turn is judged good, has a
    hint, and is ready."""

    def say(*texts: str, answer: str = "hello there", session: str = "s1", user: str = "ada") -> list[str]:
        gateway.says(answer)
        messages: list[Any] = []
        found = []
        for text in texts:
            messages.append({"role": "user", "content": text})
            body = {"messages": messages, "user": user}
            got = gateway.http.post(
                "/v1/chat/completions", json=body, headers={"X-Session-Id": session}
            ).json()
            found.append(got["id"])
            messages.append(got["choices"][0]["message"])
        return found

    return say


@pytest.fixture
def judge(gateway: RunningGateway) -> JudgeTurn:
    """f(completion, score, hint): judges the turn; its sample becomes ready."""

    def vote(completion: str, score: float = 1.0, hint: str = "be short") -> None:
        store = gateway.store
        turn = gateway.turn(completion)
        gateway.wait_for(lambda: gateway.turn(completion).state in ("answered", "captured"))
        store.turns.answer(turn.id, [{"role": "user", "content": "thanks"}])
        votes = [Vote(score=int(score), text="the person said so")]
        judgements = [
            Judgement(kind="eval", score=score, votes=votes, judge="rules", prompt="rules-v4"),
            Judgement(kind="hint", score=1.0, votes=votes, judge="rules", hints=[hint]),
        ]
        assert store.judgements.finish(
            turn.id, judgements, SampleDraft(turn_id=turn.id, reward={"score": score})
        )

    return vote
