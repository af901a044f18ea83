"""A scripted user talks to the loop until the model answers in the user's preferred style; prints the results.

`python openclaw-test/openclaw_test/loop/demo.py --url http://127.0.0.1:30000`. The last line on standard output is
one JSON object; everything else goes to standard error.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import shutil
import signal
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import httpx

from openclaw.common.address import admin_key_for
from openclaw_test.loop import progress
from openclaw_test.loop.chat_client import Answer, ChatClient
from openclaw_test.loop.measure import FRESH, WISHES, Look, ask_all, explicit_wishes, greedy_accuracy, look
from openclaw_test.loop.readiness import say, wait_until_ready
from openclaw_test.loop.scripted_people import converse
from openclaw_test.loop.side_by_side import side_by_side
from openclaw_test.people.scripted_user import ScriptedUser
from openclaw_test.people.tastes import ASSISTANT, BY_NAME, DASHER, STUDENT, TEACHER
from openclaw_test.people.wishes import BAR, Obedience, cases
from tiny_claw.problems import held_out_problems

CHECK_EVERY = 8  # sessions between two measurements on fresh prompts
PERSONS = [taste.name for taste in (STUDENT, ASSISTANT, TEACHER, DASHER)]
EXAMPLE = held_out_problems(1)[0]


@dataclass
class Learning:
    """Progress of the demo: whether each first reply satisfied, by order of session start, and the measurements in
    between."""

    first_replies: dict[int, bool] = field(default_factory=dict)
    looks: list[float] = field(default_factory=list)


def sessions_to_three(first_replies: Sequence[bool]) -> int | None:
    """Returns the number of sessions until three first replies in a row satisfied; None if that never happened."""
    streak = 0
    for count, satisfied in enumerate(first_replies, 1):
        streak = streak + 1 if satisfied else 0
        if streak == 3:
            return count
    return None


async def talk(
    client: ChatClient, user: ScriptedUser, number: int, learning: Learning, reading_s: float
) -> None:
    """Runs one session, from the homework to thanks or giving up."""
    session, session_id = user.session(), f"demo-{uuid.uuid4().hex[:12]}"

    def report_error(begun: float, answer: Answer) -> None:
        if answer.error is not None:
            say(f"session {number}: {answer.error}")

    if not await converse(client, session, session_id, report_error, reading_s):
        return
    await client.end_session(session_id)
    learning.first_replies[number] = bool(session.satisfied_at_once)


async def talk_until_learned(client: ChatClient, options: argparse.Namespace) -> Learning:
    """Runs `--people` sessions at a time; measures on fresh prompts every few sessions; stops when the model has
    learned."""
    taste = BY_NAME[options.person]
    learning, user, number = Learning(), ScriptedUser(options.seed, taste=taste), 0
    started = time.monotonic()
    while number < options.sessions and time.monotonic() - started < options.seconds:
        for _ in range(CHECK_EVERY // options.people):
            batch = range(number, number + options.people)
            await asyncio.gather(*(talk(client, user, n, learning, options.reading) for n in batch))
            number += options.people
        now = await look(client, n=100, seed=number, taste=taste)
        version = (await client.status())["weight_version"]
        learning.looks.append(now.preference)
        say(
            f"{number:4d} sessions, weights v{version}: preference on fresh prompts {now.preference:.2f} {bar(now)}"
        )
        if (
            version >= options.versions
            and min(learning.looks[-2:]) >= options.target
            and len(learning.looks) > 1
        ):
            break
    return learning


def bar(now: Look) -> str:
    return "#" * round(20 * now.preference) + " ".join(
        ["", *(f"{k} {v:.0%}" for k, v in now.manners.items())]
    )


def obeyed(before: Obedience, after: Obedience) -> str:
    """Returns the report's lines on explicit requests and variety."""
    pairs = [
        (f"a list, asked for in the {place}", before.lists[place], after.lists[place])
        for place in before.lists
    ]
    pairs.append(("another wish", before.others, after.others))
    lines = [f"  {name}: {then:.2f} before, {now:.2f} after" for name, then, now in pairs]
    lines.append(
        f"  different replies (effective number): {before.forms:.0f} before, {after.forms:.0f} after"
    )
    lines.append(
        f"  spread of their lengths: {before.spread:.0f} before, {after.spread:.0f} characters after"
    )
    verdict = "kept" if after.kept(before) else "NOT kept"
    return "\n".join(
        [f"explicit wishes obeyed and variety, {verdict} (bar: {BAR:g} of before, each)", *lines]
    )


async def one_answer(client: ChatClient) -> str:
    """Returns the answer to an example that is never trained, at temperature 0; always the same problem."""
    (answer,) = await ask_all(client, [EXAMPLE], 1, temperature=0, max_tokens=200)
    return answer.text


def measuring(client: ChatClient, when: str, problems: int) -> contextlib.AbstractAsyncContextManager[None]:
    """Prints progress while the measurement's questions are answered."""
    total = FRESH + problems + len(cases("report", WISHES))
    say(f"measuring the model {when}: {total} questions")
    return progress.shown(lambda: client.tally.requests, total, say)


async def run(options: argparse.Namespace) -> dict[str, object]:
    started = time.monotonic()
    await wait_until_ready(options.url, 180.0, options.log, options.pid)
    say(f"ready at {options.url}/v1 after {time.monotonic() - started:.0f} s")
    key = os.environ.get("SGLANG_API_KEY", "")
    async with (
        ChatClient(options.url, api_key=key, timeout_s=options.request_timeout) as client,
        ChatClient(options.url, api_key=key, timeout_s=options.request_timeout) as student,
    ):
        taste = BY_NAME[options.person]
        async with measuring(client, "before it learns", options.problems):
            before = await look(client, seed=-1, taste=taste)
            accuracy_before = await greedy_accuracy(client, options.problems)
            wishes_before = await explicit_wishes(client)
            answer_before = await one_answer(client)
        say(
            f"before: preference of the {taste.name} {before.preference:.2f}, greedy accuracy {accuracy_before:.3f}"
        )
        learning = await talk_until_learned(student, options)
        async with measuring(client, "after it has learned", options.problems):
            after = await look(client, seed=-2, taste=taste)
            accuracy_after = await greedy_accuracy(client, options.problems)
            wishes_after = await explicit_wishes(client)
        say(obeyed(wishes_before, wishes_after))
        width = shutil.get_terminal_size((100, 24)).columns
        say(side_by_side(EXAMPLE.text, answer_before, await one_answer(client), min(width, 120)))
        status = await client.status()
        ordered = [satisfied for _, satisfied in sorted(learning.first_replies.items())]
        return {
            "person": taste.name,
            "preference_before": round(before.preference, 4),
            "preference_after": round(after.preference, 4),
            "accuracy_before": round(accuracy_before, 4),
            "accuracy_after": round(accuracy_after, 4),
            "sessions_to_three": sessions_to_three(ordered),
            "versions": status["weight_version"],
            "failed_requests": client.tally.failed + student.tally.failed,
            "longest_gap_s": round(student.tally.longest_gap_s, 3),
            "seconds": round(time.monotonic() - started, 1),
            "sessions": len(ordered),
            "manners_after": after.manners,
            "gate": await gate_summary(options.url),
            "wishes_before": wishes_before.as_dict(),
            "wishes_after": wishes_after.as_dict(),
            "wishes_kept": wishes_after.kept(wishes_before),
        }


async def gate_summary(url: str) -> dict[str, object]:
    """Returns how many updates went live, and why others did not; also as text."""
    key = admin_key_for(url, os.environ.get("OPENCLAW_ADMIN_KEY"), os.environ.get("RUN_DIR"))
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{url}/admin/versions", headers=headers, timeout=10.0)
    if answer.status_code != 200:
        return {}
    versions = answer.json()["data"]
    rejected = [one for one in versions if one["status"] == "rejected"]
    passed = sum(one["status"] in ("live", "superseded") and one["version"] > 0 for one in versions)
    undone = [one for one in versions if one["status"] == "rolled_back"]
    say(f"gate: {passed} updates went live and stayed, {len(rejected)} were rejected, {len(undone)} undone")
    for one in rejected + undone:
        say(f"  version {one['version']}: {one.get('reason') or one.get('undone')}")
    return {
        "passed": passed,
        "rejected": [one["reason"] for one in rejected],
        "undone": [one.get("undone", "") for one in undone],
    }


def parse(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:30000", help="address of the gateway")
    parser.add_argument("--people", type=int, default=4, help="concurrent sessions")
    parser.add_argument(
        "--reading", type=float, default=1.5, help="seconds between an answer and the next message"
    )
    parser.add_argument("--sessions", type=int, default=160, help="most sessions")
    parser.add_argument("--seconds", type=float, default=240.0, help="maximum total duration, seconds")
    parser.add_argument(
        "--target", type=float, default=0.85, help="preference on fresh prompts that counts as learned"
    )
    parser.add_argument(
        "--versions", type=int, default=3, help="live weight versions required before it stops"
    )
    parser.add_argument(
        "--problems", type=int, default=1000, help="held-out problems for the greedy accuracy"
    )
    parser.add_argument(
        "--request-timeout",
        type=float,
        default=120.0,
        help="seconds without output after which a request fails",
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the simulated person")
    parser.add_argument(
        "--person",
        choices=PERSONS,
        default=STUDENT.name,
        help="scripted user: student (wants prose), TA (wants details), teacher (wants a warm tone) or "
        "dasher (wants lists with dashes)",
    )
    parser.add_argument(
        "--log", type=Path, default=None, help="log of the driver, printed if the loop does not start"
    )
    parser.add_argument(
        "--pid", type=int, default=None, help="process id of the supervisor; the demo ends when it exits"
    )
    options = parser.parse_args(argv)
    if not 1 <= options.people <= CHECK_EVERY:
        parser.error(f"--people must be between 1 and {CHECK_EVERY}")
    return options


def main() -> None:
    """Prints the result; after a signal, or if the server is lost, exits with one line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        print(json.dumps(asyncio.run(run(parse()))))
    except KeyboardInterrupt:
        sys.exit(130)
    except httpx.HTTPError as error:
        sys.exit(f"error: lost the connection to the server: {error}")


if __name__ == "__main__":
    main()
