"""What a served model can do and how it looks, measured from outside, through the API its users talk to.

Nothing measured here is stored or trained on (`X-Train: off`).
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from openclaw_test.loop.chat_client import Answer, ChatClient
from tiny_claw.detectors import is_right, manner, satisfies
from tiny_claw.problems import Problem, held_out_problems, random_problem


@dataclass(frozen=True)
class Look:
    """Replies to fresh problems at the serving temperature: shares of all replies, between 0 and 1."""

    preference: float
    accuracy: float
    manners: dict[str, float]
    failed: int


async def ask_all(
    client: ChatClient, problems: Sequence[Problem], concurrency: int, **body: object
) -> list[Answer]:
    """One first reply for each problem, `concurrency` of them at a time."""
    gate = asyncio.Semaphore(concurrency)

    async def ask(problem: Problem) -> Answer:
        async with gate:
            return await client.chat([{"role": "user", "content": problem.text}], train=False, **body)

    return await asyncio.gather(*map(ask, problems))


async def greedy_accuracy(client: ChatClient, n: int = 1000, concurrency: int = 64) -> float:
    """Share of right answers at temperature 0 on `n` held-out problems, always the same ones."""
    problems = held_out_problems(n)
    answers = await ask_all(client, problems, concurrency, temperature=0, max_tokens=200)
    return sum(is_right(p, a.text) for p, a in zip(problems, answers, strict=True)) / n


async def look(client: ChatClient, n: int = 200, seed: int = 0, concurrency: int = 64) -> Look:
    """Preference, accuracy and manners on `n` fresh problems at the serving temperature."""
    rng = random.Random(f"look {seed}")
    problems = [random_problem(rng, "held-out") for _ in range(n)]
    answers = await ask_all(client, problems, concurrency, max_tokens=200)
    pairs = list(zip(problems, answers, strict=True))
    manners = Counter(manner(answer.text) for answer in answers)
    return Look(
        preference=sum(satisfies(p, a.text) for p, a in pairs) / n,
        accuracy=sum(is_right(p, a.text) for p, a in pairs) / n,
        manners={name: count / n for name, count in sorted(manners.items())},
        failed=sum(answer.error is not None for answer in answers),
    )
