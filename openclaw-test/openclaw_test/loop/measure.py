"""Measures what a served model can do and in which style it answers, through its public API.

Nothing measured here is stored or trained on (`X-Train: off`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_test.loop.chat_client import Answer, ChatClient
from openclaw_test.people.tastes import STUDENT, Taste
from openclaw_test.people.wishes import Messages, Obedience, cases, obedience
from tiny_claw.detectors import is_right, manner
from tiny_claw.problems import Problem, held_out_problems, random_problem

FRESH = 200
"""Fresh problems in a measurement."""
WISHES = 40
"""List requests at each place, as in `cases`."""


@dataclass(frozen=True)
class Look:
    """Measurement of replies to fresh problems at the serving temperature: shares of all replies, between 0 and 1."""

    preference: float
    accuracy: float
    manners: dict[str, float]
    failed: int


async def ask_all(
    client: ChatClient, problems: Sequence[Problem], concurrency: int, **body: object
) -> list[Answer]:
    """Returns one first reply for each problem, `concurrency` at a time."""
    asked: list[Messages] = [[{"role": "user", "content": problem.text}] for problem in problems]
    return await answers_to(client, asked, concurrency, **body)


async def answers_to(
    client: ChatClient, conversations: Sequence[Messages], concurrency: int, **body: object
) -> list[Answer]:
    """Returns one answer for each conversation, `concurrency` at a time."""
    gate = asyncio.Semaphore(concurrency)

    async def ask(messages: Messages) -> Answer:
        async with gate:
            return await client.chat(messages, train=False, **body)

    return await asyncio.gather(*map(ask, conversations))


async def greedy_accuracy(client: ChatClient, n: int = 1000, concurrency: int = 64) -> float:
    """Returns the share of right answers at temperature 0 on `n` held-out problems, always the same ones."""
    problems = held_out_problems(n)
    answers = await ask_all(client, problems, concurrency, temperature=0, max_tokens=200)
    return sum(is_right(p, a.text) for p, a in zip(problems, answers, strict=True)) / n


async def look(
    client: ChatClient, n: int = FRESH, seed: int = 0, concurrency: int = 64, taste: Taste = STUDENT
) -> Look:
    """Measures preference, accuracy and manners on `n` fresh problems at the serving temperature. `taste`: the
    preference to measure."""
    rng = random.Random(f"look {seed}")
    problems = [random_problem(rng, "held-out") for _ in range(n)]
    answers = await ask_all(client, problems, concurrency, max_tokens=200)
    pairs = list(zip(problems, answers, strict=True))
    manners = Counter(manner(answer.text) for answer in answers)
    return Look(
        preference=sum(taste.is_content(p, a.text) for p, a in pairs) / n,
        accuracy=sum(is_right(p, a.text) for p, a in pairs) / n,
        manners={name: count / n for name, count in sorted(manners.items())},
        failed=sum(answer.error is not None for answer in answers),
    )


async def explicit_wishes(
    client: ChatClient, n: int = WISHES, seed: int = 0, concurrency: int = 64
) -> Obedience:
    """Measures whether the model obeys explicit requests at the serving temperature; `n` as in `cases`."""
    asked = cases("report", n, seed)
    answers = await answers_to(client, [case.messages for case in asked], concurrency, max_tokens=200)
    return obedience(asked, [answer.text for answer in answers])
