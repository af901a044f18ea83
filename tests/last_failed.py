"""Prints the tests that failed in the last run, a line each: `python tests/last_failed.py .pytest_cache`."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def last_failed(cache: Path) -> list[str]:
    """Names of tests as pytest keeps them; none where nothing failed, or no run was ever kept."""
    try:
        found: dict[str, bool] = json.loads((cache / "v" / "cache" / "lastfailed").read_text())
    except FileNotFoundError:
        return []
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(last_failed(Path(sys.argv[1]))))
