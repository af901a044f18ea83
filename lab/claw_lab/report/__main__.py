"""Generates the pages of measured numbers from lab/reports: python -m claw_lab.report [--check]"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from claw_lab import ROOT
from claw_lab.report.measurement import ReportError
from claw_lab.report.render import pages
from claw_lab.report.reports import read_reports


def stale(root: Path) -> dict[str, str]:
    """Returns the pages of a repository that differ from its reports, each with its correct text. Raises
    ReportError."""
    expected = pages(read_reports(root / "lab" / "reports"))
    return {
        name: text
        for name, text in expected.items()
        if not (root / name).is_file() or (root / name).read_text() != text
    }


def main(arguments: list[str] | None = None) -> int:
    """Returns 0, or 1 if a report is wrong or, with --check, a page is out of date."""
    parser = argparse.ArgumentParser(
        prog="python -m claw_lab.report", description="Write the pages of measured numbers."
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if a page differs from the reports"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help="root of the repository (default: this one)")
    options = parser.parse_args(arguments)
    try:
        outdated = stale(options.root)
    except ReportError as error:
        print(error, file=sys.stderr)
        return 1
    for name, text in outdated.items():
        if options.check:
            print(f"{name}: out of date; run: python -m claw_lab.report", file=sys.stderr)
        else:
            (options.root / name).write_text(text)
            print(f"wrote {name}")
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
