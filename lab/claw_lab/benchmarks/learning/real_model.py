"""Measures whether a small language model learns brevity from conversations in the real loop, and keeps its
abilities.

`bash lab/run.sh benchmarks.learning.real_model CORPUS --url http://127.0.0.1:30000 --sessions 48`, where CORPUS is
the unpacked package chatterbot-corpus. A person asks everyday questions, complains once about an answer of more than
two sentences, and gives thanks for a short one. Before and after, on questions that are never talked about, at
temperature 0 and without training: the share of brief answers, of detailed answers if details are explicitly
requested, and of right answers to trivia, in the whole answer and in its first two sentences. `--sessions 0` only
measures. The last line on standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from openclaw_test.evaluation.plain_questions import (
    COMPLAINTS,
    FACTS,
    IN_DETAIL,
    OPEN,
    THANKS,
    Question,
    beginning,
    drawn,
    is_brief,
    is_detailed,
    read_questions,
)
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.measure import answers_to
from openclaw_test.loop.readiness import say
from openclaw_test.people.wishes import Messages

LONGEST = 200
"""Maximum tokens of an answer."""


async def replies(client: ChatClient, texts: Sequence[str], at_once: int) -> list[str]:
    """Returns greedy answers that are not trained, in the order of the texts."""
    asked: list[Messages] = [[{"role": "user", "content": text}] for text in texts]
    answers = await answers_to(client, asked, at_once, temperature=0, max_tokens=LONGEST)
    return [answer.text for answer in answers]


async def measured(
    client: ChatClient, asked: Sequence[Question], facts: Sequence[Question], at_once: int
) -> dict[str, Any]:
    """Returns shares from 0 to 1, the mean words of an answer, and the replies."""
    plain = await replies(client, [one.text for one in asked], at_once)
    wished = await replies(client, [f"{one.text} {IN_DETAIL}" for one in asked], at_once)
    described = await replies(client, [one.text for one in facts], at_once)
    answered = list(zip(facts, described, strict=True))
    return {
        "brief": mean([is_brief(reply) for reply in plain]),
        "words": mean([len(reply.split()) for reply in plain]),
        "detailed_when_asked": mean([is_detailed(reply) for reply in wished]),
        "words_when_asked": mean([len(reply.split()) for reply in wished]),
        "right": mean([one.is_right(reply) for one, reply in answered]),
        "right_in_two_sentences": mean([one.is_right(beginning(reply)) for one, reply in answered]),
        "examples": [[one.text, reply] for one, reply in list(zip(asked, plain, strict=True))[:4]],
    }


def mean(values: Sequence[float]) -> float:
    return round(sum(values) / max(1, len(values)), 4)


async def session(client: ChatClient, question: Question, rng: random.Random, reading_s: float) -> bool:
    """Runs one conversation: question, at most one complaint, thanks if the answer pleases; returns whether the first
    one pleased. The person reads each answer for `reading_s` seconds."""
    name, messages = f"real-{uuid.uuid4().hex[:12]}", [{"role": "user", "content": question.text}]
    pleased: list[bool] = []
    while len(pleased) < 2 and not (pleased and pleased[-1]):
        answer = await client.chat(messages, session_id=name, max_tokens=LONGEST)
        await asyncio.sleep(reading_s)
        pleased.append(is_brief(answer.text))
        message = rng.choice(THANKS if pleased[-1] else COMPLAINTS)
        messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": message}]
    await client.chat(messages, session_id=name, max_tokens=24)
    await client.end_session(name)
    return pleased[0]


async def run(options: argparse.Namespace) -> dict[str, Any]:
    trivia = read_questions(options.corpus, (FACTS,))
    asked = drawn(read_questions(options.corpus, OPEN), "report", options.questions, options.seed)
    facts = drawn(trivia, "report", options.facts, options.seed)
    topics = drawn(read_questions(options.corpus, OPEN) + trivia, "talk", options.sessions, options.seed)
    rng, room, first = random.Random(options.seed), asyncio.Semaphore(options.people), []
    key = os.environ.get("SGLANG_API_KEY", "")
    begun = time.monotonic()
    async with ChatClient(options.url, api_key=key, timeout_s=600.0) as client:
        before = await measured(client, asked, facts, options.people)
        say(f"before: {described(before)}")
        if not topics:
            return {"before": before, "seconds": round(time.monotonic() - begun, 1)}
        talking = time.monotonic()

        async def one(question: Question) -> None:
            async with room:
                first.append(await session(client, question, rng, options.reading))
                if len(first) % 8 == 0:
                    version = (await client.status())["weight_version"]
                    say(f"{len(first)} sessions, version {version}: {sum(first[-8:])} of 8 pleased at once")

        await asyncio.gather(*map(one, topics))
        await settled(client, options.settle)
        talked_s = time.monotonic() - talking
        after = await measured(client, asked, facts, options.people)
        say(f"after: {described(after)}")
        return {
            "before": before,
            "after": after,
            "pleased_at_once": [mean(first[at : at + 8]) for at in range(0, len(first), 8)],
            "sessions": len(first),
            "versions": (await client.status())["weight_version"],
            "failed_requests": client.tally.failed,
            "longest_gap_s": round(client.tally.longest_gap_s, 2),
            "talk_seconds": round(talked_s, 1),
            "seconds": round(time.monotonic() - begun, 1),
        }


async def settled(client: ChatClient, seconds: float) -> None:
    """Waits until no new version has come for `seconds`."""
    version, since = -1, time.monotonic()
    while time.monotonic() - since < seconds:
        now = (await client.status())["weight_version"]
        if now != version:
            version, since = now, time.monotonic()
        await asyncio.sleep(1.0)


def described(look: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in look.items() if name != "examples")


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path, help="unpacked package chatterbot-corpus")
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="address of the gateway")
    parser.add_argument("--sessions", type=int, default=48, help="number of conversations")
    parser.add_argument("--people", type=int, default=4, help="concurrent conversations")
    parser.add_argument(
        "--reading", type=float, default=8.0, help="seconds between an answer and the next message"
    )
    parser.add_argument(
        "--questions",
        type=int,
        default=40,
        help="held-out questions, asked plainly and with a request for details",
    )
    parser.add_argument("--facts", type=int, default=80, help="held-out trivia")
    parser.add_argument(
        "--settle", type=float, default=150.0, help="seconds without a new version after which the run ends"
    )
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(parse()))))
