"""Imports a history into a new run and trains on it before the first conversation: bash lab/run.sh long.imports

Each program's log holds homework conversations: an answer as a list, a complaint, an answer in sentences, thanks.
Prints the imported turns, every version with its gate's result, and the shares of answers in sentences before and
after; exit status 1 if a check fails.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx

from claw_lab import MODEL, ROOT
from openclaw.store import RolloutStore
from openclaw_test.loop.chat_client import ChatClient
from openclaw_test.loop.measure import look
from openclaw_test.loop.real_loop import Loop, running_loop
from tests.fakes.history_logs import (
    ClaudeLog,
    hermes_database,
    openclaw_answered,
    openclaw_lines,
    openclaw_said,
    text,
    write_lines,
)
from tiny_claw.manners import Style, write_reply
from tiny_claw.problems import random_problem

SCRIPT = ROOT / "openclaw-combine" / "run_tiny_openclaw_topk_select.sh"
TALKS = 6  # of each program
SECONDS = 300.0
Talk = tuple[tuple[str, str], ...]
"""(role, text) of each message."""


def talks(rng: random.Random) -> Iterator[Talk]:
    while True:
        problem = random_problem(rng, "train")
        yield (
            ("user", problem.text),
            ("assistant", write_reply(rng, problem, Style("list"), thinking=False)),
            ("user", "No list please, write plain sentences."),
            ("assistant", write_reply(rng, problem, Style("prose"), thinking=False)),
            ("user", "Thank you, that is what I wanted."),
        )


def write_openclaw(folder: Path, number: int, talk: Talk) -> None:
    writers = {"user": openclaw_said, "assistant": openclaw_answered}
    lines = openclaw_lines(*(writers[role](words) for role, words in talk), session=f"oc-{number}")
    write_lines(folder / ".openclaw/agents/main/sessions" / f"oc-{number}.jsonl", lines)


def write_claude(folder: Path, number: int, talk: Talk) -> None:
    log = ClaudeLog(f"cc-{number}")
    for index, (role, words) in enumerate(talk):
        if role == "user":
            log.says(words)
        else:
            log.answers(f"msg-{index}", text(words))
    write_lines(folder / ".claude/projects/work" / f"cc-{number}.jsonl", log.lines)


def write_hermes(folder: Path, number: int, talk: Talk) -> None:
    home = folder / f".hermes-{number}"
    home.mkdir()
    if number == 0:
        hermes_database(home / "state.db", *((role, words, None, None, 1) for role, words in talk))
    else:
        messages = [{"role": role, "content": words} for role, words in talk]
        write_lines(
            home / "session.jsonl", [{"id": f"h-export-{number}", "source": "cli", "messages": messages}]
        )


def write_atif(folder: Path, number: int, talk: Talk) -> None:
    steps = [
        {"step_id": index + 1, "source": {"user": "user", "assistant": "agent"}[role], "message": words}
        for index, (role, words) in enumerate(talk)
    ]
    document = {
        "schema_version": "ATIF-v1.7", "session_id": f"atif-{number}", "agent": {"name": "a", "version": "1"},
        "steps": steps,
    }  # fmt: skip
    home = folder / "trials" / str(number)
    home.mkdir(parents=True)
    (home / "trajectory.json").write_text(json.dumps(document))


WRITERS: tuple[Callable[[Path, int, Talk], None], ...] = (
    write_openclaw,
    write_claude,
    write_hermes,
    write_atif,
)


def bring_in(folder: Path, buffer: Path) -> list[dict[str, Any]]:
    """Returns the output of the user's two commands: a dry run, and the import."""
    words = [str(folder), "--model-path", str(MODEL), "--person", "ann", "--rl-buffer-dir", str(buffer)]
    lines = []
    for more in (["--dry-run"], []):
        command = [sys.executable, "-m", "openclaw.store", "import", *words, *more]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
        lines.append(json.loads(done.stdout))
    return lines


def trained(loop: Loop, turns: int) -> bool:
    """Returns whether every imported turn is trained or dropped."""
    samples = loop.status()["samples"]
    return sum(samples.values()) >= turns and not samples.get("ready") and not samples.get("leased")


async def preference(url: str) -> float:
    async with ChatClient(url) as client:
        return (await look(client, n=100, seed=3)).preference


def problems_of(loop: Loop, store: RolloutStore, turns: int) -> list[str]:
    problems = []
    sources = Counter(row["source"] for row in loop.turns("source"))
    if set(sources) != {"import"}:
        problems.append(f"turns are from {dict(sources)}: somebody talked")
    versions = httpx.get(f"{loop.url}/admin/versions", timeout=10.0).json()
    for version in versions["data"]:
        print(
            json.dumps(
                {name: version.get(name) for name in ("version", "status", "stage", "reason", "measurements")}
            )
        )
    if not versions["live"]:
        problems.append("no version went live")
    if not all(one.get("measurements") for one in versions["data"] if one["version"]):
        problems.append("an update was not examined by the gate")
    samples = store.status.counts()["samples"]
    print(json.dumps({"samples": samples}))
    if samples.get("trained", 0) < turns // 2:
        problems.append(f"of {turns} turns only {samples} were trained")
    return problems


def main() -> int:
    began = time.monotonic()
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        home, run_dir = Path(name) / "home", Path(name) / "run"
        home.mkdir()
        source = talks(random.Random("imports"))
        for number in range(TALKS):
            for write in WRITERS:
                write(home, number, next(source))
        counts, brought = bring_in(home, run_dir / "buffer")
        print(json.dumps({"dry_run": counts}))
        print(json.dumps({"import": brought}), flush=True)
        turns = 2 * TALKS * len(WRITERS)
        with running_loop(run_dir, script=SCRIPT) as loop:
            print(json.dumps({"ready_s": round(time.monotonic() - loop.started_at, 1)}), flush=True)
            before = asyncio.run(preference(loop.url))
            loop.wait_for(lambda: trained(loop, turns), SECONDS, "end of the training on the imports")
            after = asyncio.run(preference(loop.url))
            store = RolloutStore(run_dir / "buffer")
            problems = problems_of(loop, store, turns)
            store.close()
        if after <= before:
            problems.append("nothing was learned")
        print(json.dumps({"preference_at_start": before, "preference_after": after, "problems": problems,
                          "seconds": round(time.monotonic() - began)}))  # fmt: skip
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
