"""The scores of an evaluation: pass@1 and pass@k over tasks, each with an interval.

A task's pass@k is the unbiased estimate from its n attempts (`pass_rate.pass_at_k`), that of a data set the mean over
tasks. The interval is Wilson's at 95 % with the number of tasks as its count. An estimate of one task lies between 0
and 1, so its variance is at most p (1 - p): the interval is right for one attempt a task, and never too narrow for
several. Attempts that failed because of infrastructure are excluded and counted.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from slime.errors import ConfigError
from slime.rollout.metrics import EVALUATIONS, pass_at_k

Z = 1.959964  # for 95 %
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Estimate:
    """A share with its 95 % interval over `tasks` tasks; NaN for none."""

    value: float
    low: float
    high: float
    tasks: int

    def __str__(self) -> str:
        return f"{self.value:.2f} [{self.low:.2f}, {self.high:.2f}]"


@dataclass(frozen=True)
class Evaluation:
    """One evaluation of one data set.

    Attributes:
        rollout_id: number of rollouts trained before it.
        attempts: largest number of attempts of a task.
        failed: attempts lost to infrastructure.
        solved: for each task with a known attempt, its attempts and how many of them solved it.
        tool_use: share of known attempts that called a tool.
        steps: mean number of turns of known attempts.
    """

    dataset: str
    rollout_id: int
    tasks: int
    attempts: int
    failed: int
    solved: Mapping[str, tuple[int, int]]
    tool_use: float
    steps: float

    def pass_at(self, k: int) -> Estimate:
        """Returns the estimate over tasks with at least k known attempts."""
        return estimate(pass_at_k(n, solved, k) for n, solved in self.solved.values() if n >= k)


def estimate(values: Iterable[float]) -> Estimate:
    """Returns the mean of values between 0 and 1, with Wilson's interval."""
    known = list(values)
    if not known:
        return Estimate(math.nan, math.nan, math.nan, 0)
    n, mean = len(known), fmean(known)
    centre = (mean + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(mean * (1 - mean) / n + Z * Z / (4 * n * n))
    return Estimate(mean, max(0.0, centre - half), min(1.0, centre + half), n)


def change(before: Evaluation, after: Evaluation) -> Estimate:
    """Returns the difference in pass@1 over the common tasks: paired, with a normal interval from the spread of the
    differences."""
    both = before.solved.keys() & after.solved.keys()
    shares = [
        [solved / n for n, solved in (e.solved[task] for e in (before, after))] for task in sorted(both)
    ]
    differences = [last - first for first, last in shares]
    if not differences:
        return Estimate(math.nan, math.nan, math.nan, 0)
    mean, n = fmean(differences), len(differences)
    half = Z * stdev(differences) / math.sqrt(n) if n > 1 else math.nan
    return Estimate(mean, mean - half, mean + half, n)


def read_evaluations(run_dir: Path) -> list[Evaluation]:
    """Returns all evaluations of a run, by data set and rollout. If one was repeated after a crash, the last counts;
    truncated lines are skipped.

    Raises:
        ConfigError: the run has none.
    """
    rows: dict[tuple[Any, ...], Row] = {}
    path = run_dir / EVALUATIONS
    if not path.is_file():
        raise ConfigError(
            f"{path} does not exist: the run has finished no evaluation yet; check its --eval-interval"
        )
    for row in json_lines(path):
        rows[row["dataset"], row["rollout_id"], row["row"], row["attempt_id"]] = row
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for (dataset, rollout_id, *_), by_task in rows.items():
        groups[dataset, rollout_id].append(by_task)
    return [_evaluation(*key, groups[key]) for key in sorted(groups)]


def _evaluation(dataset: str, rollout_id: int, rows: Sequence[Row]) -> Evaluation:
    known = [row for row in rows if row["success"] is not None]
    solved: dict[str, tuple[int, int]] = {}
    for row in known:
        n, count = solved.get(row["task_id"], (0, 0))
        solved[row["task_id"]] = n + 1, count + row["success"]
    per_task: dict[str, int] = defaultdict(int)
    for row in rows:
        per_task[row["task_id"]] += 1
    return Evaluation(
        dataset,
        rollout_id,
        tasks=len(per_task),
        attempts=max(per_task.values()),
        failed=len(rows) - len(known),
        solved=solved,
        tool_use=fmean(row["tool_calls"] > 0 for row in known) if known else math.nan,
        steps=fmean(row["steps"] for row in known) if known else math.nan,
    )


def json_lines(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a JSON Lines file, without truncated lines."""
    parsed = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            parsed.append(json.loads(line))
        except ValueError:
            continue
    return parsed
