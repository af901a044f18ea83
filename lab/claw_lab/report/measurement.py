"""One measured number and its run: fields, checks, and the reader of a run's JSON file."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from datetime import date
from typing import TypeAlias

from claw_base.errors import ClawError

AREAS = {
    "starting": "Starting",
    "serving": "Serving",
    "learning": "Learning",
    "gate": "Gate and rollback",
    "judge": "Judge",
    "faults": "Faults",
    "tracks": "Tracks",
    "environments": "Environments and sandboxes",
    "trainer": "Trainer",
    "rented": "Rented GPUs",
}
"""Folders of lab/reports in order, each with its heading in RESULTS.md."""
CONDITIONS = (
    "hardware", "cores", "load", "software", "backend", "model", "method", "data", "seeds", "setting", "commit",
)  # fmt: skip
"""Keys that may describe the conditions of a run or of a number."""
DIRECTIONS = ("at least", "at most")
KINDS = ("range", "90 %", "95 %")
"""Kinds of intervals: minimum and maximum of several runs, or a confidence interval."""
Value: TypeAlias = int | float | bool


class ReportError(ClawError):
    """A report is wrong; the message names the file, the measurement and the field."""


@dataclass(frozen=True)
class Interval:
    """Bounds of a measured value, in its unit."""

    low: float
    high: float
    kind: str


@dataclass(frozen=True)
class Measurement:
    """One number: `value` in `unit`, and its target. A bool is a check that passed or failed; its unit is empty."""

    id: str
    metric: str
    value: Value
    unit: str
    interval: Interval | None = None
    n: int | None = None
    target: Value | None = None
    direction: str | None = None
    met: bool | None = None
    conditions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    note: str = ""
    superseded: str = ""


@dataclass(frozen=True)
class Run:
    """The measurements of one command, or of a few related ones, on one day. `superseded`: id of the newer run."""

    id: str
    area: str
    date: date
    title: str
    command: str
    measurements: tuple[Measurement, ...]
    conditions: Mapping[str, str] = field(default_factory=dict)
    note: str = ""
    superseded: str = ""

    def current(self) -> tuple[Measurement, ...]:
        """Returns the measurements that no newer one replaces."""
        return () if self.superseded else tuple(one for one in self.measurements if not one.superseded)


def is_met(value: Value, target: Value, direction: str) -> bool:
    """Returns whether `value` reaches `target`."""
    return value >= target if direction == "at least" else value <= target


def read_run(identifier: str, content: object) -> Run:
    """Returns the run of one JSON file; `identifier` is AREA/NAME.DATE. Raises ReportError."""
    match = re.fullmatch(r"(\w+)/[a-z0-9-]+\.(\d{4}-\d{2}-\d{2})", identifier)
    if match is None or match[1] not in AREAS:
        raise ReportError(f"{identifier}: expected AREA/NAME.YYYY-MM-DD, AREA one of {', '.join(AREAS)}")
    run = _Fields(
        identifier, content, ("date", "title", "command", "conditions", "note", "superseded", "measurements")
    )
    if run.text("date") != match[2]:
        raise ReportError(f"{identifier}: date: {run.text('date')} is not the date in the file name")
    rows = run.content.get("measurements")
    if not isinstance(rows, list) or not rows:
        raise ReportError(f"{identifier}: measurements: expected a list with at least one measurement")
    measurements = tuple(_measurement(f"{identifier}#", row) for row in rows)
    names = [one.id for one in measurements]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ReportError(f"{identifier}: id given twice: {', '.join(sorted(twice))}")
    return Run(
        id=identifier,
        area=match[1],
        date=_date(identifier, match[2]),
        title=run.text("title"),
        command=run.text("command"),
        measurements=measurements,
        conditions=run.conditions(),
        note=run.text("note", ""),
        superseded=run.text("superseded", ""),
    )


def _measurement(run: str, content: object) -> Measurement:
    row = _Fields(run, content, [one.name for one in fields(Measurement)] + ["interval_kind"])
    row.name = f"{run}{row.text('id')}"
    value, unit = row.number("value"), row.text("unit", None if "unit" not in row.content else "")
    if value is None:
        raise ReportError(f"{row.name}: value: missing")
    if isinstance(value, bool) is not (unit == ""):
        raise ReportError(
            f"{row.name}: unit: a number needs a unit, and a check (true or false) has the unit ''"
        )
    target, direction, met = _goal(row, value)
    return Measurement(
        id=row.text("id"),
        metric=row.text("metric"),
        value=value,
        unit=unit,
        interval=_interval(row),
        n=_count(row),
        target=target,
        direction=direction,
        met=met,
        conditions=row.conditions(),
        command=row.text("command", ""),
        note=row.text("note", ""),
        superseded=row.text("superseded", ""),
    )


def _goal(row: _Fields, value: Value) -> tuple[Value | None, str | None, bool | None]:
    """Returns target, direction and met: all three or none; `met` must follow from the others."""
    target = row.number("target")
    if target is None:
        if extra := [name for name in ("direction", "met") if name in row.content]:
            raise ReportError(f"{row.name}: {extra[0]}: given without a target")
        return None, None, None
    direction, met = row.text("direction"), is_met(value, target, row.text("direction"))
    if direction not in DIRECTIONS:
        raise ReportError(f"{row.name}: direction: {direction!r} is not one of {', '.join(DIRECTIONS)}")
    if (stated := row.content.get("met")) is not met:
        raise ReportError(f"{row.name}: met: {stated} contradicts {value} with target {direction} {target}")
    return target, direction, met


def _interval(row: _Fields) -> Interval | None:
    bounds = row.content.get("interval")
    if bounds is None:
        if "interval_kind" in row.content:
            raise ReportError(f"{row.name}: interval_kind: given without an interval")
        return None
    kind = row.text("interval_kind")
    if kind not in KINDS:
        raise ReportError(f"{row.name}: interval_kind: {kind!r} is not one of {', '.join(KINDS)}")
    if (
        not isinstance(bounds, list)
        or len(bounds) != 2
        or not all(isinstance(one, int | float) for one in bounds)
    ):
        raise ReportError(f"{row.name}: interval: expected two numbers")
    if bounds[0] > bounds[1]:
        raise ReportError(f"{row.name}: interval: {bounds[0]} is above {bounds[1]}")
    return Interval(bounds[0], bounds[1], kind)


def _count(row: _Fields) -> int | None:
    n = row.content.get("n")
    if n is None:
        return None
    if isinstance(n, bool) or not isinstance(n, int) or n < 1:
        raise ReportError(f"{row.name}: n: expected a count above 0, not {n!r}")
    return n


def _date(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ReportError(f"{name}: date: {error}") from error


class _Fields:
    """Typed access to the keys of a JSON object, which has no keys except `known`."""

    def __init__(self, name: str, content: object, known: Collection[str]) -> None:
        if not isinstance(content, dict):
            raise ReportError(f"{name}: expected a JSON object")
        self.name = name
        self.content: dict[str, object] = content
        if unknown := sorted(set(content) - set(known)):
            raise ReportError(f"{name}: unknown key: {', '.join(unknown)}")

    def text(self, key: str, default: str | None = None) -> str:
        """Returns a string, or `default`; without a default an empty or missing one raises ReportError."""
        value = self.content.get(key, default)
        if value is None or (value == "" and default is None):
            raise ReportError(f"{self.name}: {key}: missing")
        if not isinstance(value, str):
            raise ReportError(f"{self.name}: {key}: expected text, not {value!r}")
        return value

    def number(self, key: str) -> Value | None:
        """Returns a number or a bool, or None if the key is missing."""
        value = self.content.get(key)
        if value is not None and not isinstance(value, int | float):
            raise ReportError(f"{self.name}: {key}: expected a number, true or false, not {value!r}")
        return value

    def conditions(self) -> dict[str, str]:
        """Returns the conditions in the order of CONDITIONS."""
        conditions = self.content.get("conditions", {})
        if not isinstance(conditions, dict) or not all(isinstance(one, str) for one in conditions.values()):
            raise ReportError(f"{self.name}: conditions: expected an object of texts")
        if unknown := sorted(set(conditions) - set(CONDITIONS)):
            raise ReportError(
                f"{self.name}: conditions: unknown key: {', '.join(unknown)}; known: {', '.join(CONDITIONS)}"
            )
        return {key: conditions[key] for key in CONDITIONS if key in conditions}
