"""Measures a judge that was learned from labelled next states against the rules that it begins with.

`bash lab/run.sh benchmarks.learning.learned_judge` learns from the lists that rules may be tuned on
(tests/openclaw/judge/data: tuning, recorded/tune), then measures both judges on those that nothing was tuned on, and
prints one JSON line: shares of clear lines, and the failing commands that were judged +1."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_lab.benchmarks.learning.judge_agreement import DATA, clear_shares, question_of, score
from openclaw.judge.backends.base import JudgeBackend
from openclaw.judge.backends.learned import LearnedBackend
from openclaw.judge.learned.classifier import CLASSES, Example
from openclaw.judge.learned.examples import example_of
from openclaw.judge.learned.judge_file import learn
from openclaw.judge.rules.judge import RulesBackend

LEARNED_FROM = (DATA / "tuning.jsonl", DATA / "recorded" / "tune.jsonl")
MEASURED_ON = (
    DATA / "next_states.jsonl",
    DATA / "after_the_rules.jsonl",
    DATA / "recorded" / "held_out.jsonl",
)


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def example(row: dict[str, Any]) -> Example:
    """Lines about one answer are on one side of a split."""
    low, none, high = (float(row["label"] == name) for name in CLASSES)
    return example_of(question_of(row), (low, none, high), 1.0, group=row["response"] or row["id"])


async def measured(judge: JudgeBackend, path: Path) -> dict[str, Any]:
    rows = rows_of(path)
    pairs = [(row, await score(judge, row, 1, 0.0)) for row in rows]
    failed = [given == 1 for row, given in pairs if row.get("kind") == "tool" and row["label"] == -1]
    asked = [(row, given) for row, given in pairs if row.get("kind") == "person-new-request"]
    return {
        **clear_shares([pair for pair in pairs if pair[0]["clear"]]),
        "new_requests_judged": clear_shares(asked)["invented"],
        "failing_commands": len(failed),
        "failing_commands_judged_good": sum(failed),
    }


async def run(most_wrong: float) -> dict[str, Any]:
    learned = learn([example(row) for path in LEARNED_FROM for row in rows_of(path)], most_wrong)
    judges: tuple[JudgeBackend, ...] = (RulesBackend(), LearnedBackend(learned))
    return {
        "threshold": learned.threshold,
        "temperature": learned.temperature,
        "learned_from": learned.measured,
        **{judge.name: {path.stem: await measured(judge, path) for path in MEASURED_ON} for judge in judges},
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A learned judge beside the rules, on labelled next states.")
    parser.add_argument(
        "--most-wrong", type=float, default=0.02, help="as of python -m openclaw.judge.learned"
    )
    print(json.dumps(asyncio.run(run(parser.parse_args(argv).most_wrong))))


if __name__ == "__main__":
    main()
