"""Scores results files of the three people, and writes a report.

    python openclaw-test/openclaw_test/evaluation/score.py --dataset GSM8K.json \
        before=results_before.txt after=results_student.txt --report report

Each NAME=FILE is one column: before and after training, or one a method. `--person` overrides the person, which is
otherwise read from the session keys. `report.md`, `report.json` and `report.svg` (preference over sessions) are
written; the JSON line goes to stdout. `--evaluator MODEL` adds v1's levels, asked of that model at OPENAI_BASE_URL
with OPENAI_API_KEY.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "slime"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from openclaw_test.evaluation.plot import chart
from openclaw_test.people.gsm8k import BadDataset, WordProblem, read_problems
from openclaw_test.people.phases import PHASES
from openclaw_test.people.scoring import Evaluator, Summary, curve, read_results, summarise

ROWS = (
    ("preference", "as the person wants it: manners, right, steps kept"),
    ("manners", "manners alone"),
    ("right", "right result"),
    ("steps_kept", "steps kept and right"),
    ("bare", "collapsed to a bare answer"),
    ("sessions_to_three", "sessions until three in a row (v2)"),
    ("level", "evaluator's level, 0 to 1 (v1)"),
)


def main() -> int:
    args = _parser().parse_args()
    try:
        problems = read_problems(args.dataset)
        evaluator = _evaluator(args)
        summaries, curves = {}, {}
        for column in args.results:
            name, _, file = column.partition("=")
            results = read_results(Path(file))
            person = args.person or person_of(Path(file))
            levels = (
                None
                if evaluator is None
                else [evaluator.level(person, problems[n], text) for n, text in results]
            )
            summaries[name] = summarise(person, problems, results, levels)
            curves[name] = curve(person, problems, results)
    except (OSError, ValueError, BadDataset) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.report:
        write_report(args.report, summaries, curves, problems)
    print(json.dumps({name: summary.as_dict() for name, summary in summaries.items()}))
    return 0


def person_of(file: Path) -> str:
    """Returns the person whose sessions a results file contains. Raises ValueError."""
    head = file.read_text(encoding="utf-8")[:200]
    for name, phase in PHASES.items():
        if f"[session: {phase.key}-" in head:
            return name
    raise ValueError(f"{file}: the sessions' keys name no person; give --person")


def markdown(summaries: dict[str, Summary]) -> str:
    """Returns a Markdown table with one column a results file."""
    names = list(summaries)
    people = "".join(
        f" {name} ({summary.person}, {summary.sessions} sessions) |" for name, summary in summaries.items()
    )
    lines = [f"| |{people}", "|---|" + "--:|" * len(names)]
    for field, text in ROWS:
        values = [getattr(summary, field) for summary in summaries.values()]
        lines.append(f"| {text} |" + "".join(f" {_shown(value)} |" for value in values))
    return "\n".join(lines) + "\n"


def write_report(
    stem: Path,
    summaries: dict[str, Summary],
    curves: dict[str, list[tuple[int, float]]],
    problems: list[WordProblem],
) -> None:
    """Writes `stem`.md, .json and .svg."""
    stem.with_suffix(".json").write_text(
        json.dumps({name: summary.as_dict() for name, summary in summaries.items()}, indent=1) + "\n"
    )
    stem.with_suffix(".svg").write_text(chart(curves, "first replies as wanted, last nine sessions", 0.8))
    picture = f"![preference over sessions]({stem.with_suffix('.svg').name})\n"
    stem.with_suffix(".md").write_text(
        f"# First replies, {len(problems)} problems\n\n{markdown(summaries)}\n{picture}"
    )


def _shown(value: object) -> str:
    return "-" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value)


def _evaluator(args: argparse.Namespace) -> Evaluator | None:
    if args.evaluator is None:
        return None
    key = os.environ.get("OPENAI_API_KEY")
    if not key:
        raise ValueError("--evaluator needs OPENAI_API_KEY")
    url = os.environ.get("OPENAI_BASE_URL", "https://api.openai.com/v1")
    return Evaluator(url, key, args.evaluator, args.votes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Scores first replies.")
    parser.add_argument("results", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--dataset", type=Path, required=True)
    parser.add_argument("--person", choices=list(PHASES))
    parser.add_argument("--evaluator", metavar="MODEL")
    parser.add_argument("--votes", type=int, default=5)
    parser.add_argument("--report", type=Path, help="output path without extension")
    return parser


if __name__ == "__main__":
    sys.exit(main())
