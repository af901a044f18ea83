"""Prints the tests that failed in the last run, one per line: `python tests/last_failed.py .pytest_cache`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def last_failed(cache: Path) -> list[str]:
    """Returns test names as stored by pytest; empty if none failed or no run was stored."""
    try:
        found: dict[str, bool] = json.loads((cache / "v" / "cache" / "lastfailed").read_text())
    except FileNotFoundError:
        return []
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(last_failed(Path(sys.argv[1]))))
