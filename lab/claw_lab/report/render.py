"""Renders the pages of the reports as Markdown: numbers.md, RESULTS.md and NOT_MET.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from claw_lab.report.measurement import AREAS, Measurement, Run, Value
from claw_lab.report.reports import Reports

GENERATED = (
    "<!-- Written by `python -m claw_lab.report` from lab/reports. Change the JSON, not this page. -->"
)
NOT_MET = "**not met**"
DEFAULTS = (
    "Unless a row or its run names others, the conditions are: 2 shared CPU cores of a Linux machine without a GPU,\n"
    "Python 3.11, torch 2.13."
)


def pages(reports: Reports) -> dict[str, str]:
    """Returns the text of each page by its path from the root of the repository."""
    return {
        "instructions/numbers.md": numbers(reports),
        "lab/RESULTS.md": results(reports.runs),
        "lab/NOT_MET.md": not_met(reports.runs),
    }


def numbers(reports: Reports) -> str:
    """Returns the page of about a dozen headlines."""
    rows = [
        [one.metric, _result(one.measurement), _target(one.measurement), _met(one.measurement), one.run.date.isoformat(),
         f"[details]({one.details})"]
        for one in reports.headlines
    ]  # fmt: skip
    return _page(
        "# Numbers",
        f"{DEFAULTS} Other work shared the cores, so treat times as orders of magnitude. Shares are between 0 and 1.",
        table(["metric", "result", "target", "met", "date", "details"], rows),
        "All results, with conditions and commands: [lab/RESULTS.md](../lab/RESULTS.md). What is below its target:\n"
        "[lab/NOT_MET.md](../lab/NOT_MET.md). Questions and their answers: [lab/findings](../lab/findings/README.md).",
        "No number on this page was measured on a GPU. One run on an H200, without SGLang: "
        "[results](../lab/RESULTS.md#one-h200-kernels-training-versions-and-the-whole-loop-of-the-tiny-model).",
    )


def results(runs: Sequence[Run]) -> str:
    """Returns the page of all current measurements, one section for each area."""
    parts = [
        "# Results",
        f"{DEFAULTS} Load is the load average, mostly from other work. A range is the lowest and\n"
        "the highest of several runs; its result is the end that is further from the target. A share is between 0 and 1.",
        "Below target: [NOT_MET.md](NOT_MET.md). How to add a number: [reports](reports/README.md).\n"
        "Questions and their answers: [findings](findings/README.md).",
        " · ".join(f"[{heading}](#{_anchor(heading)})" for heading in AREAS.values()),
    ]
    for area, heading in AREAS.items():
        parts.append(f"## {heading}")
        parts += [_section(run) for run in runs if run.area == area and run.current()]
    return _page(*parts)


def not_met(runs: Sequence[Run]) -> str:
    """Returns the page of all current measurements below their target."""
    rows = [
        [run.title, one.metric, _result(one), _target(one), run.date.isoformat(),
         _conditions({**run.conditions, **one.conditions}), one.note]
        for run in runs
        for one in run.current()
        if one.met is False
    ]  # fmt: skip
    return _page(
        "# Not met",
        "Every current result below its target, from [RESULTS.md](RESULTS.md).",
        table(["run", "metric", "result", "target", "date", "conditions", "note"], rows),
    )


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Returns a Markdown table without columns that are empty in all rows."""
    kept = [at for at in range(len(heads)) if at == 0 or any(row[at] for row in rows)]
    lines = [
        [heads[at] for at in kept],
        ["---" for _ in kept],
        *([_cell(row[at]) for at in kept] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _section(run: Run) -> str:
    facts = [run.date.isoformat(), _conditions(run.conditions), f"`{run.command}`"]
    columns: dict[str, Callable[[Measurement], str]] = {
        "metric": lambda one: one.metric,
        "conditions": lambda one: _conditions(one.conditions),
        "result": lambda one: number(one.value),
        "unit": lambda one: one.unit,
        "interval": _interval,
        "n": lambda one: "" if one.n is None else number(one.n),
        "target": _bound,
        "met": _met,
        "command": lambda one: f"`{one.command}`" if one.command else "",
        "note": lambda one: one.note,
    }
    rows = [[column(one) for column in columns.values()] for one in run.current()]
    parts = [
        f"### {run.title}",
        "; ".join(fact for fact in facts if fact),
        run.note,
        table(list(columns), rows),
    ]
    return "\n\n".join(part for part in parts if part)


def number(value: Value) -> str:
    """Returns a value as text: yes and no, commas as thousands separators, an exponent for small and large values."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or abs(value) >= 1000:
        return f"{value:,}"
    return repr(value).replace("e-0", "e-")


def _with_unit(text: str, unit: str) -> str:
    """Returns a number with its unit; a share has none."""
    return text if unit in ("", "share") else f"{text} {unit}"


def _result(one: Measurement) -> str:
    return _with_unit(number(one.value), one.unit)


def _bound(one: Measurement) -> str:
    """Returns the target of a measurement; checks and failure counts have no direction."""
    if one.target is None:
        return ""
    bare = isinstance(one.target, bool) or (one.target == 0 and one.direction == "at most")
    return number(one.target) if bare else f"{one.direction} {number(one.target)}"


def _target(one: Measurement) -> str:
    return "" if one.target is None else _with_unit(_bound(one), one.unit)


def _met(one: Measurement) -> str:
    return "" if one.met is None else "yes" if one.met else NOT_MET


def _interval(one: Measurement) -> str:
    span = one.interval
    return "" if span is None else f"{number(span.low)} to {number(span.high)} ({span.kind})"


def _conditions(conditions: Mapping[str, str]) -> str:
    return "; ".join(f"{key}: {value}" for key, value in conditions.items())


def _anchor(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([title, GENERATED, *parts]) + "\n"
