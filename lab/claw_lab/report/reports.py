"""Reads all reports of a folder and checks references between runs, and the headlines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from claw_lab.report.measurement import AREAS, Measurement, ReportError, Run, read_run

HEADLINES = "headlines.json"


@dataclass(frozen=True)
class Headline:
    """A row of instructions/numbers.md: a measurement with a short name, and the page with details."""

    metric: str
    run: Run
    measurement: Measurement
    details: str


@dataclass(frozen=True)
class Reports:
    """All runs and headlines; areas are in their order, runs of an area newest first."""

    runs: tuple[Run, ...]
    headlines: tuple[Headline, ...]


def read_reports(folder: Path) -> Reports:
    """Returns the content of AREA/NAME.DATE.json and headlines.json of the folder. Raises ReportError."""
    runs = [
        read_run(f"{path.parent.name}/{path.name.removesuffix('.json')}", _json(path))
        for path in sorted(folder.glob("*/*.json"))
    ]
    order = list(AREAS)
    runs.sort(key=lambda run: (order.index(run.area), -run.date.toordinal(), run.id))
    _check_superseded(runs)
    return Reports(tuple(runs), _headlines(_json(folder / HEADLINES), runs))


def _json(path: Path) -> object:
    try:
        content: object = json.loads(path.read_text())
    except ValueError as error:
        raise ReportError(f"{path}: not JSON: {error}") from error
    return content


def _check_superseded(runs: Sequence[Run]) -> None:
    current = {run.id for run in runs if not run.superseded}
    for run in runs:
        names = [
            (run.id, run.superseded),
            *((f"{run.id}#{one.id}", one.superseded) for one in run.measurements),
        ]
        for name, by in names:
            if by and (by not in current or by == run.id):
                raise ReportError(f"{name}: `superseded` must be the id of another current run, not {by}")


def _headlines(content: object, runs: Sequence[Run]) -> tuple[Headline, ...]:
    known = {f"{run.id}#{one.id}": (run, one) for run in runs for one in run.current()}
    if not isinstance(content, list):
        raise ReportError(f"{HEADLINES}: expected a list")
    headlines = []
    for row in content:
        if not isinstance(row, dict) or set(row) != {"metric", "measurement", "details"}:
            raise ReportError(f"{HEADLINES}: expected metric, measurement and details in {row}")
        if row["measurement"] not in known:
            raise ReportError(f"{HEADLINES}: {row['measurement']} is not a current measurement")
        headlines.append(Headline(row["metric"], *known[row["measurement"]], details=row["details"]))
    return tuple(headlines)
