"""What a run has had computed at a service that rents out GPUs, read from the run folder: `usage/*.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

PRICES = "prices.json"
MILLION = 1_000_000


def rented_usage(run_dir: Path) -> dict[str, Any] | None:
    """Tokens by who asked for them and kind, and US dollars where prices are known; None for a run that rents nothing.

    Returns:
        `{"tokens": {"serving": {"prefill": 8, "sample": 6, "train": 0}}, "cost_usd": 0.01}`
    """
    folder = run_dir / "usage"
    tokens: dict[str, dict[str, int]] = {}
    for path in sorted(folder.glob("[!.]*.json")):
        if path.name != PRICES:
            counted = orjson.loads(path.read_bytes())
            mine = tokens.setdefault(counted["role"], {})
            for kind, count in counted["tokens"].items():
                mine[kind] = mine.get(kind, 0) + count
    if not tokens:
        return None
    found: dict[str, Any] = {"tokens": tokens}
    if (folder / PRICES).is_file():
        prices = orjson.loads((folder / PRICES).read_bytes())
        spent = sum(prices[kind] * count for mine in tokens.values() for kind, count in mine.items())
        found["cost_usd"] = spent / MILLION
    return found
