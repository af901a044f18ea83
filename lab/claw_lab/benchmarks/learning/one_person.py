"""Measures in the real loop how soon a language model learns one person's preference, and how much it keeps.

`bash lab/run.sh benchmarks.learning.one_person --wish brief --sessions 20` runs next to a run of any language model.
The person asks everyday questions, complains at most twice about an answer of another form, and gives thanks for one
that pleases. Questions are by several writers, complaints and thanks by one of them
(`openclaw_test.people.everyday_talk`); held-out questions are those of `./claw progress`, which are never trained.
Every few sessions some held-out questions are asked at temperature 0; before and after, `./claw progress` measures
everything. The last line on standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from openclaw.progress.forms import FORMS
from openclaw.progress.prompts import all_items, chosen
from openclaw.progress.replies import Reply
from openclaw_test.loop.chat_client import Answer, ChatClient
from openclaw_test.loop.measure import answers_to
from openclaw_test.loop.readiness import say
from openclaw_test.people.everyday_talk import THANKS, WRITERS, TalkLine, read_talk
from openclaw_test.people.wishes import Messages

IN_A_ROW = 3
"""Number of first replies in a row that must please."""
MOST_COMPLAINTS = 2
REFUSAL = re.compile(r"\W*(?:i'?m sorry|sorry|as an ai\b|i (?:cannot|can't|am unable))", re.IGNORECASE)
"""Matches the beginning of a refusal, which is short but does not please."""
JUDGED_WITHIN = 10.0
"""Seconds within which the judge scores all turns of a session."""


@dataclass
class Course:
    """Counts of the conversations.

    Attributes:
        first: whether the first reply of each session pleased.
        looks: [sessions, version, share of held-out replies that please].
        waits: seconds from the end of a session until another version was live, of sessions that were waited for.
    """

    first: list[bool] = field(default_factory=list)
    looks: list[tuple[int, int, float]] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)

    def sessions_until_pleasing(self) -> int | None:
        """Returns the sessions until `IN_A_ROW` first replies in a row please; None if they never do."""
        for end in range(IN_A_ROW, len(self.first) + 1):
            if all(self.first[end - IN_A_ROW : end]):
                return end
        return None


@dataclass(frozen=True)
class Person:
    """A person with one preference, and all their messages."""

    wish: str
    longest: int
    rng: random.Random
    complaints: Sequence[TalkLine]
    thanks: Sequence[TalkLine]

    def is_pleased(self, answer: Answer) -> bool:
        return FORMS[self.wish](reply_of(answer)) and not is_refusal(answer)

    async def session(self, client: ChatClient, question: str) -> bool:
        """Runs one conversation; returns whether its first reply pleased. After a refusal the person leaves. Raises
        RuntimeError if a request fails."""
        name = f"person-{uuid.uuid4().hex[:12]}"
        messages: Messages = [{"role": "user", "content": question}]
        pleased: list[bool] = []
        while not pleased or (not pleased[-1] and len(pleased) <= MOST_COMPLAINTS):
            answer = await client.chat(messages, session_id=name, max_tokens=self.longest)
            if answer.error is not None:
                raise RuntimeError(answer.error)
            pleased.append(self.is_pleased(answer))
            if is_refusal(answer):
                break
            message = self.rng.choice(self.thanks if pleased[-1] else self.complaints).text
            messages += [{"role": "assistant", "content": answer.text}, {"role": "user", "content": message}]
        else:
            await client.chat(messages, session_id=name, max_tokens=24)
        await client.end_session(name)
        return pleased[0]


def is_refusal(answer: Answer) -> bool:
    return REFUSAL.match(answer.text) is not None


def reply_of(answer: Answer) -> Reply:
    return Reply(answer.text, answer.finish_reason == "stop")


async def look(client: ChatClient, person: Person, questions: Sequence[Messages]) -> float:
    """Returns the share of held-out questions whose reply at temperature 0 pleases."""
    answers = await answers_to(client, questions, 4, temperature=0, max_tokens=person.longest)
    return statistics.fmean(person.is_pleased(answer) for answer in answers)


async def talk(client: ChatClient, person: Person, options: argparse.Namespace, course: Course) -> None:
    """Runs all sessions, one after another."""
    items = [item for item in all_items() if item.group == "in_scope"]
    held_out = [list(item.messages) for item in chosen(items, options.questions)]
    topics = [line.text for line in read_talk("question")]
    topics = random.Random(f"topics {options.seed}").sample(topics, min(options.sessions, len(topics)))
    for number, topic in enumerate(topics, 1):
        version = await live(client)
        course.first.append(await person.session(client, topic))
        course.waits += await next_version(client, version, options.wait)
        if number % options.look_every == 0 or number == len(topics):
            share, version = await look(client, person, held_out), await live(client)
            course.looks.append((number, version, round(share, 3)))
            say(f"{number} sessions, version {version}: {share:.2f} of held-out questions please")


async def live(client: ChatClient) -> int:
    return int((await client.status())["weight_version"])


async def next_version(client: ChatClient, version: int, most: float) -> list[float]:
    """Returns the seconds until another version is live; [] if none comes within `most`, or the session gave no
    training data."""
    began = time.monotonic()
    while (waited := time.monotonic() - began) < most:
        status = await client.status()
        if int(status["weight_version"]) != version:
            return [round(waited, 1)]
        waiting = sum(status["samples"].get(state, 0) for state in ("ready", "leased"))
        if waited > JUDGED_WITHIN and not waiting and not status["turns"].get("answered"):
            return []
        await asyncio.sleep(1.0)
    return []


def progress(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the report of `./claw progress`. Raises RuntimeError."""
    command = [sys.executable, "-m", "openclaw.progress", "--json", "--sample", str(options.sample)]
    command += ["--url", options.url]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    # 3: no person has stated a preference yet, as before the talk.
    if done.returncode not in (0, 3) or not done.stdout:
        raise RuntimeError(done.stderr[-2000:])
    report: dict[str, Any] = json.loads(done.stdout)
    return report


async def run(options: argparse.Namespace) -> dict[str, Any]:
    rng = random.Random(f"person {options.seed}")
    counts = {
        kind: [one for one in read_talk(kind) if one.writer == options.writer]
        for kind in (options.wish, THANKS)
    }
    if not counts[options.wish]:
        raise SystemExit(f"writer {options.writer} does not ask for {options.wish}: choose one of E to H")
    person = Person(options.wish, options.longest, rng, counts[options.wish], counts[THANKS])
    course, begun = Course(), time.monotonic()
    if options.sample:
        say("measures the model before the talk")
        await asyncio.to_thread(progress, options)
    key = os.environ.get("SGLANG_API_KEY", "")
    async with ChatClient(options.url, api_key=key, timeout_s=600.0) as client:
        talking = time.monotonic()
        await talk(client, person, options, course)
        talked_s = time.monotonic() - talking
        status = await client.status()
        failed, gap = client.tally.failed, client.tally.longest_gap_s
    after = await asyncio.to_thread(progress, options) if options.sample else {}
    return {
        "wish": options.wish,
        "writer": options.writer,
        "seed": options.seed,
        "sessions": len(course.first),
        "first_replies_pleased": course.first,
        "sessions_until_pleasing": course.sessions_until_pleasing(),
        "looks": course.looks,
        "seconds_to_next_version": course.waits,
        "versions": status["weight_version"],
        "failed_requests": failed,
        "longest_gap_s": round(gap, 2),
        "talk_seconds": round(talked_s, 1),
        "seconds": round(time.monotonic() - begun, 1),
        "progress": {name: after[name] for name in ("rows", "summary", "base") if name in after},
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="address of the gateway")
    parser.add_argument("--wish", choices=("brief", "prose", "greeting", "list", "long"), default="brief")
    parser.add_argument(
        "--writer",
        choices=tuple(WRITERS),
        default="A",
        help="writer of the complaints and thanks; A to D never ask for lists or longer answers",
    )
    parser.add_argument("--sessions", type=int, default=20, help="number of conversations")
    parser.add_argument(
        "--wait", type=float, default=600.0, help="seconds to wait for a new version after each session"
    )
    parser.add_argument(
        "--look-every", type=int, default=2, help="sessions between two measurements with held-out questions"
    )
    parser.add_argument("--questions", type=int, default=24, help="held-out questions per measurement")
    parser.add_argument(
        "--sample", type=int, default=24, help="prompts per class of ./claw progress; 0: skip it"
    )
    parser.add_argument("--longest", type=int, default=160, help="most tokens of a reply")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(parse()))))
