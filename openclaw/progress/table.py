"""Formats a report as plain text of at most 100 columns."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from typing import Any

WIDTH = 100
CURVE_ROWS = 8
"""Number of earlier reports shown, newest last."""


def table(report: dict[str, Any], wishes: Sequence[dict[str, Any]], earlier: Sequence[dict[str, Any]]) -> str:
    """Returns the report as text: its settings, rows and summary, and earlier reports."""
    lines = [f"{report['model']}, version {report['live']}", ""]
    for number, wish in enumerate(wishes, 1):
        since = "" if wish["at"] is None else f", since {_day(wish['at'])}"
        lines.append(_cut(f'wish {number}{since}: "{" ".join(wish["text"].split())}"'))
    lines += [
        "",
        f"{'':<40} {'before':>8} {'now':>8} {'95 % of now':>15} {'prompt':>8} {'n':>5} {'p':>8}",
        *(_line(row) for row in report["rows"]),
        "",
    ]
    if report["summary"]:
        lines.append("C3PO: " + ", ".join(f"{name} {value:.2f}" for name, value in report["summary"].items()))
    notes = [
        f"before: {report['base']}",
        f"prompt: {report['prompted']}",
        "p: exact McNemar test, now against before",
    ]
    lines += [line for note in notes for line in textwrap.wrap(note, WIDTH, subsequent_indent="  ")]
    lines += _curve(earlier)
    return "\n".join(line.rstrip() for line in lines)


def _line(row: dict[str, Any]) -> str:
    low = "" if row["interval"] is None else " to ".join(_number(one) for one in row["interval"])
    cells = [_number(row[name]) for name in ("before", "now")]
    p = "" if row["p"] is None else "<0.001" if row["p"] < 0.001 else f"{row['p']:.3f}"
    return (
        f"{row['label'][:40]:<40} {cells[0]:>8} {cells[1]:>8} {low:>15} {_number(row['prompted']):>8} "
        f"{row['count']:>5} {p:>8}"
    )


def _curve(earlier: Sequence[dict[str, Any]]) -> list[str]:
    """Returns the lines about earlier reports, which show the change over time."""
    if not earlier:
        return []
    lines = ["", "earlier reports (shares now):"]
    for one in earlier[-CURVE_ROWS:]:
        rows = {row["name"]: row for row in one["rows"]}
        numbers = [
            f"{row['label'].partition('(')[2].rstrip(')') or 'wish'} {row['now']:.2f}"
            for name, row in rows.items()
            if name.startswith("wish_")
        ]
        opposite = [row for name, row in rows.items() if name.startswith("opposite_")]
        count = sum(row["count"] for row in opposite)
        if count:
            numbers.append(f"opposite {sum(row['now'] * row['count'] for row in opposite) / count:.2f}")
        numbers += [f"facts {rows['facts']['now']:.2f}"] if "facts" in rows else []
        lines.append(_cut(f"  {_day(one['time'])}  version {one['live']:>4}  {', '.join(numbers)}"))
    return lines


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"


def _cut(line: str) -> str:
    """Returns a line shortened to `WIDTH` characters; a shortened quotation keeps its closing quotation mark."""
    end = ' ..."' if line.endswith('"') else " ..."
    return line if len(line) <= WIDTH else line[: WIDTH - len(end)] + end
