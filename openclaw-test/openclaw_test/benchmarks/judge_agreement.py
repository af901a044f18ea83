"""How often a judge agrees with labelled next states: all of them and the clear ones, by language.

`python openclaw-test/openclaw_test/benchmarks/judge_agreement.py` measures the rules on the lists in
tests/openclaw/judge/data and prints one JSON line. `opposite` is the share of the clear ones that got the opposite sign,
which trains the wrong way; a 0 only trains nothing. The judge's own flags choose another judge (`--backend openai
--judge-url URL --judge-model NAME`)."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from openclaw.errors import JudgeError
from openclaw.judge.backends.base import JudgeBackend, make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.questions import JudgeQuestion
from openclaw.judge.settings import add_flags, load_settings
from openclaw.judge.votes import majority_score

DATA = Path(__file__).resolve().parents[3] / "tests" / "openclaw" / "judge" / "data"


def question_of(row: dict[str, Any]) -> JudgeQuestion:
    """The question that a labelled line asks."""
    roles = {message["role"] for message in row["next"]}
    return JudgeQuestion(
        response=row["response"],
        next_state=row["next"],
        role="user" if "user" in roles else "tool",
        messages=[{"role": "user", "content": row["asked"]}],
    )


async def score(backend: JudgeBackend, row: dict[str, Any], votes: int, threshold: float) -> float | None:
    """The judge's score; None when it failed."""
    try:
        return majority_score(await backend.eval_votes(question_of(row), votes), threshold)
    except JudgeError as error:
        print(f"{row['id']}: {error}", file=sys.stderr)
        return None


def agreement(rows: list[dict[str, Any]], scores: list[float | None]) -> dict[str, Any]:
    """Shares of agreement: all and clear, in all and by language."""
    pairs = list(zip(rows, scores, strict=True))
    signs = [row["label"] * (given or 0) < 0 for row, given in pairs if row["clear"]]
    shares: dict[str, Any] = {"lines": len(rows), "failed": scores.count(None)}
    shares["opposite"] = round(sum(signs) / len(signs), 3) if signs else None
    for language in ("", *sorted({row["language"] for row in rows})):
        for clear in (True, False):
            hits = [
                row["label"] == given
                for row, given in pairs
                if language in ("", row["language"]) and (row["clear"] or not clear)
            ]
            name = "_".join(filter(None, ("clear" if clear else "all", language)))
            shares[name] = round(sum(hits) / len(hits), 3) if hits else None
    return shares


async def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Agreement on each list, and judgements a second over all of them."""
    settings = load_settings(args)
    backend = make_backend(settings, JudgeMetrics(settings.judge_backend))
    limit = asyncio.Semaphore(settings.judge_concurrency)

    async def one(row: dict[str, Any]) -> float | None:
        async with limit:
            return await score(backend, row, settings.prm_m, settings.majority_vote_threshold)

    lists: dict[str, Any] = {}
    started, judged = time.perf_counter(), 0
    try:
        for path in args.lists:
            rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
            lists[path.stem] = agreement(rows, list(await asyncio.gather(*map(one, rows))))
            judged += len(rows)
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
    add_flags(parser.add_argument_group("judge", "Who judges, and how."), short=True)
    args = parser.parse_args(argv)
    args.lists = args.lists or sorted(DATA.glob("*.jsonl"))
    print(json.dumps(asyncio.run(measure(args))))


if __name__ == "__main__":
    main()
