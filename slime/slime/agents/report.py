"""The effect of training on held-out tasks: a table, a plot, and one JSON line.

python -m slime.agents.report RUN [--dataset NAME] [--plot FILE.svg] [--line]
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from slime.agents.scores import Evaluation, change, json_lines, read_evaluations
from slime.errors import ConfigError
from slime.rollout.metrics import AWAY, EVALUATIONS
from slime.utils.line_chart import COLOURS, LineChart, words

METRICS = "metrics.jsonl"
_SECONDS = ("perf/eval_time", "perf/rollout_time", "perf/train_time")


def table(evaluations: Sequence[Evaluation]) -> str:
    """Returns one line an evaluation of one data set, and the change between the first and the last, in Markdown."""
    k = max(evaluation.attempts for evaluation in evaluations)
    best = [] if k == 1 else [f"pass@{k}"]
    lines = [_cells(["rollouts", "pass@1", *best, "tasks", "turns", "tool use", "lost to infrastructure"])]
    lines.append(_cells(["--:"] * (6 + len(best))))
    for one in evaluations:
        shares = [str(one.pass_at(1)), *(str(one.pass_at(k)) for _ in best)]
        counts = [str(one.tasks), f"{one.steps:.1f}", f"{one.tool_use:.2f}", str(one.failed)]
        lines.append(_cells([str(one.rollout_id), *shares, *counts]))
    if len(evaluations) > 1:
        lines.append(f"\npass@1 changed by {change(evaluations[0], evaluations[-1])} (paired over tasks)")
    lines.append("Brackets are 95 % intervals over tasks.")
    return "\n".join(lines)


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def of_dataset(run_dir: Path, dataset: str | None = None) -> list[Evaluation]:
    """Returns the evaluations of one data set, oldest first; if none is named, of the only one.

    Raises:
        ConfigError: there is none, or several to choose from.
    """
    all_evaluations = read_evaluations(run_dir)
    names = sorted({evaluation.dataset for evaluation in all_evaluations})
    if dataset is None and len(names) > 1:
        raise ConfigError(f"the run was evaluated on {', '.join(names)}; choose one with --dataset")
    if not names or dataset not in (None, *names):
        raise ConfigError(
            f"the run has no evaluation of {dataset or 'any data set'}; it was evaluated on: {', '.join(names) or 'none'}"
        )
    return [evaluation for evaluation in all_evaluations if dataset in (None, evaluation.dataset)]


def summary(run_dir: Path, dataset: str | None = None, seconds: float | None = None) -> dict[str, Any]:
    """Returns the first and the last evaluation and the training between them, in the format that all tracks use.

    `episodes`: trained trajectories; `infra_failures`: unavailable environments, including replaced ones, and failed
    attempts at held-out tasks due to infrastructure. Values after training are None if the run ended before its
    second evaluation.

    Args:
        seconds: total duration; default: from the start of the first row of metrics to the last row.

    Raises:
        ConfigError: as `of_dataset`.
    """
    evaluations = of_dataset(run_dir, dataset)
    path = run_dir / METRICS
    rows = json_lines(path) if path.is_file() else []
    trained = {row["step"]: row for row in rows if "rollout/batch_size" in row}
    first, last = evaluations[0], evaluations[-1]
    has_second = len(evaluations) > 1
    return {
        "pass_at_1_before": _rounded(first.pass_at(1).value),
        "pass_at_1_after": _rounded(last.pass_at(1).value) if has_second else None,
        "held_out_tasks": last.tasks,
        "tool_use_after": _rounded(last.tool_use) if has_second else None,
        "episodes": int(
            sum(row.get("rollout/trajectories", row["rollout/batch_size"]) for row in trained.values())
        ),
        "infra_failures": int(sum(_failures(row) for row in trained.values()))
        + _failures_in_evaluations(run_dir),
        "seconds": round(_duration(rows) if seconds is None else seconds, 1),
    }


def closing_line(run_dir: Path | str, dataset: str | None = None, seconds: float | None = None) -> str:
    """Returns `summary` as one line of JSON."""
    return json.dumps(summary(Path(run_dir), dataset, seconds))


def _failures(row: dict[str, Any]) -> float:
    replaced: float = row.get(f"rollout/episode/{AWAY}") or 0.0
    lost: float = row.get("rollout/error_cat/environment") or 0.0
    return replaced + lost


def _failures_in_evaluations(run_dir: Path) -> int:
    rows = json_lines(run_dir / EVALUATIONS)
    return sum(int(row.get(AWAY, 0)) + (row["success"] is None) for row in rows)


def _duration(rows: Sequence[dict[str, Any]]) -> float:
    if not rows:
        return 0.0
    start = rows[0]["time"] - sum(rows[0].get(name) or 0.0 for name in _SECONDS)
    return float(rows[-1]["time"] - start)


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


@dataclass(frozen=True, kw_only=True)
class Report:
    """The run to report, and the form of the report."""

    run: Path = flag(REQUIRED, "folder of the run", positional=True)
    dataset: str | None = flag(None, "data set, if the run was evaluated on several")
    plot: Path | None = flag(None, "also write pass@1 over rollouts as an SVG file", unit="path")
    line: bool = flag(False, "print one JSON line instead of the table")
    seconds: float | None = flag(None, "duration shown in the last line (default: first to last rollout)")


def main() -> int:
    args = parse(Report, None, "python -m slime.agents.report", __doc__)
    try:
        evaluations = of_dataset(args.run, args.dataset)
        print(closing_line(args.run, args.dataset, args.seconds) if args.line else table(evaluations))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    if args.plot is not None:
        args.plot.parent.mkdir(parents=True, exist_ok=True)
        write_text(args.plot, curve(evaluations))
    return 0


BLUE, ORANGE = COLOURS[:2]


def curve(evaluations: Sequence[Evaluation]) -> str:
    """Returns an SVG text: pass@1 with its 95 % band, and the share of attempts that called a tool, of one data
    set."""
    known = [evaluation for evaluation in evaluations if evaluation.solved]
    last = max([1, *(evaluation.rollout_id for evaluation in known)])
    chart = LineChart(last)
    scores = [(evaluation.rollout_id, evaluation.pass_at(1)) for evaluation in known]
    upper = [(x, score.high) for x, score in scores]
    lower = [(x, score.low) for x, score in reversed(scores)]
    above = chart.top - 16
    return chart.svg(
        [
            *chart.axes(max(1, round(last / 8)), "rollouts"),
            chart.band([*upper, *lower], BLUE),
            chart.line([(x, score.value) for x, score in scores], BLUE),
            chart.line(
                [(evaluation.rollout_id, evaluation.tool_use) for evaluation in known], ORANGE, dashed=True
            ),
            words(chart.left, above, f"{evaluations[0].dataset}: pass@1 with 95 % interval", "start", BLUE),
            words(chart.width - chart.right, above, "share that called a tool", "end", ORANGE),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
