"""Measures how often a judge agrees with labelled next states: with all, and with the clear ones, by language.

`bash lab/run.sh benchmarks.learning.judge_agreement` measures the rules on the lists in tests/openclaw/judge/data and
prints one JSON line. `opposite` is the share of clear lines that got the opposite sign, which trains in the wrong
direction; a 0 only trains nothing. `--recorded` measures on the lists in data/recorded, whose lines have more fields:
see `recorded_agreement`. The judge's own flags select another judge (`--backend openai --judge-url URL --judge-model
NAME`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_lab import ROOT
from openclaw.errors import JudgeError
from openclaw.judge.backends.base import JudgeBackend, make_backend
from openclaw.judge.hints import find_hints
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion, majority_score
from openclaw.judge.settings import add_flags, load_settings

DATA = ROOT / "tests" / "openclaw" / "judge" / "data"


def question_of(row: dict[str, Any]) -> JudgeQuestion:
    """Returns the judge's question for a labelled line."""
    roles = {message["role"] for message in row["next"]}
    return JudgeQuestion(
        response=row["response"],
        next_state=row["next"],
        role="user" if "user" in roles else "tool",
        messages=[{"role": "user", "content": row["asked"]}],
    )


async def score(backend: JudgeBackend, row: dict[str, Any], votes: int, threshold: float) -> float | None:
    """Returns the judge's score; None if it failed."""
    try:
        return majority_score(await backend.eval_votes(question_of(row), votes), threshold)
    except JudgeError as error:
        print(f"{row['id']}: {error}", file=sys.stderr)
        return None


async def found_hint(backend: JudgeBackend, row: dict[str, Any], votes: int, longest: int) -> bool | None:
    """Returns whether the judge finds a hint in the next state; None if it failed."""
    try:
        return bool(find_hints(await backend.hint_votes(question_of(row), votes), longest).hints)
    except JudgeError as error:
        print(f"{row['id']}: {error}", file=sys.stderr)
        return None


def share(hits: Sequence[bool]) -> float | None:
    """Returns the share of True with three digits; None for an empty sequence."""
    return round(sum(hits) / len(hits), 3) if hits else None


def agreement(rows: list[dict[str, Any]], scores: list[float | None]) -> dict[str, Any]:
    """Returns the shares of agreement: all and clear lines, in total and by language."""
    pairs = list(zip(rows, scores, strict=True))
    signs = [row["label"] * (score or 0) < 0 for row, score in pairs if row["clear"]]
    shares: dict[str, Any] = {"lines": len(rows), "failed": scores.count(None)}
    shares["opposite"] = share(signs)
    for language in ("", *sorted({row["language"] for row in rows})):
        for clear in (True, False):
            hits = [
                row["label"] == score
                for row, score in pairs
                if language in ("", row["language"]) and (row["clear"] or not clear)
            ]
            name = "_".join(filter(None, ("clear" if clear else "all", language)))
            shares[name] = share(hits)
    return shares


def clear_shares(pairs: list[tuple[dict[str, Any], float | None]]) -> dict[str, Any]:
    """Returns the shares of clear lines: right scores, opposite signs, signs where the label is 0 (`invented`), and
    zeros where the label is a sign (`missed`)."""
    return {
        "lines": len(pairs),
        "right": share([row["label"] == score for row, score in pairs]),
        "opposite": share([row["label"] * (score or 0) < 0 for row, score in pairs]),
        "invented": share([score in (1, -1) for row, score in pairs if row["label"] == 0]),
        "missed": share([score not in (1, -1) for row, score in pairs if row["label"] != 0]),
    }


def recorded_agreement(
    rows: list[dict[str, Any]], scores: list[float | None], hints: list[bool | None]
) -> dict[str, Any]:
    """Returns the agreement on recorded lines: clear lines by kind and language; of all lines, failed tool calls
    judged +1, and the messages that became a hint, by kind."""
    pairs = list(zip(rows, scores, strict=True))
    clear = [(row, score) for row, score in pairs if row["clear"]]
    people = [(row, score) for row, score in clear if row["kind"] != "tool"]
    hinted = [(row, hint) for row, hint in zip(rows, hints, strict=True) if row["kind"] != "tool"]
    failed = [score == 1 for row, score in pairs if row["kind"] == "tool" and row["label"] == -1]
    return {
        "lines": len(rows),
        "failed": scores.count(None) + hints.count(None),
        "clear": clear_shares(clear),
        "kinds": {
            kind: clear_shares([(row, score) for row, score in clear if row["kind"] == kind])
            for kind in sorted({row["kind"] for row in rows})
        },
        "languages": {
            language: clear_shares([(row, score) for row, score in people if row["language"] == language])
            for language in sorted({row["language"] for row, _ in people})
        },
        "failing_commands": len(failed),
        "failing_commands_judged_good": sum(failed),
        "hints_of_label_0": share([hint is True for row, hint in hinted if row["label"] == 0]),
        "hints_of_label_1": share([hint is True for row, hint in hinted if row["label"] == 1]),
        "hints_of_wishes": share([hint is True for row, hint in hinted if row["hint"]]),
    }


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the agreement on each list, and the judgements per second over all of them."""
    settings = load_settings(args)
    backend = make_backend(settings, JudgeMetrics(settings.judge_backend))
    limit = asyncio.Semaphore(settings.judge_concurrency)

    async def one(row: dict[str, Any]) -> float | None:
        async with limit:
            return await score(backend, row, settings.prm_m, settings.majority_vote_threshold)

    async def hinted(row: dict[str, Any]) -> bool | None:
        async with limit:
            return await found_hint(backend, row, settings.prm_m, settings.judge_hint_max_chars)

    lists: dict[str, Any] = {}
    started, judged = time.perf_counter(), 0
    try:
        for path in args.lists:
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            scores = list(await asyncio.gather(*map(one, rows)))
            judged += len(rows)
            if args.recorded:
                hints = list(await asyncio.gather(*map(hinted, rows)))
                judged += len(rows)
                lists[path.stem] = recorded_agreement(rows, scores, hints)
            else:
                lists[path.stem] = agreement(rows, scores)
    finally:
        await backend.close()
    rate = judged / (time.perf_counter() - started)
    return {
        "judge": backend.name,
        "prompt": backend.prompt_name,
        "judgements_per_s": round(rate),
        "lists": lists,
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Agreement of a judge with labelled next states.")
    parser.add_argument(
        "lists", nargs="*", type=Path, help="labelled lists; default: all in tests/openclaw/judge/data"
    )
    parser.add_argument(
        "--recorded", action="store_true", help="measure on recorded lines; default: all in data/recorded"
    )
    add_flags(parser.add_argument_group("judge", "Who judges, and how."), short=True)
    args = parser.parse_args(argv)
    folder = DATA / "recorded" if args.recorded else DATA
    args.lists = args.lists or sorted(folder.glob("*.jsonl"))
    print(json.dumps(asyncio.run(measure(args))))


if __name__ == "__main__":
    main()
