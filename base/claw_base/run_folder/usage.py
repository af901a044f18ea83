"""Token counts at rented services, and their cost. Each process writes its counts to its own file in the run folder.

    RUN_DIR/usage/NAME.json     {"role": "trainer", "tokens": {"prefill": 0, "sample": 0, "train": 8123}}
    RUN_DIR/usage/prices.json   {"model": "NAME", "prefill": 0.1, "sample": 0.3, "train": 0.3}, US dollars a million

A file is written at most once a second, so `kill -9` loses at most the counts of one second.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claw_base.errors import ConfigError
from claw_base.files import write_text

FOLDER, PRICES = "usage", "prices.json"
KINDS = ("prefill", "sample", "train")
INTERVAL = 1.0  # seconds
MILLION = 1_000_000


class Meter:
    """Counts the tokens of one process; a restarted process continues its counts.

    Args:
        path: path of its file; None counts only in memory.
    """

    def __init__(self, path: Path | None, role: str) -> None:
        self.path, self.role = path, role
        self.tokens = dict.fromkeys(KINDS, 0)
        self._lock = threading.Lock()
        self.written = 0.0
        if path is not None and path.is_file():
            self.tokens |= _tokens(json.loads(path.read_text(encoding="utf-8")))

    def add(self, **tokens: int) -> None:
        """Adds tokens, by kind."""
        with self._lock:
            for kind, count in tokens.items():
                self.tokens[kind] += count
        self.flush(at_once=False)

    def flush(self, at_once: bool = True) -> None:
        """Writes the file, if the last write was long enough ago or `at_once` is set."""
        now = time.monotonic()
        with self._lock:
            if self.path is None or not (at_once or now - self.written >= INTERVAL):
                return
            self.written = now
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_text(self.path, json.dumps({"role": self.role, "tokens": self.tokens}))


def meter_path(run_dir: str | Path, name: str) -> Path:
    return Path(run_dir) / FOLDER / f"{name}.json"


@dataclass(frozen=True)
class Prices:
    """US dollars for a million tokens of each kind."""

    prefill: float
    sample: float
    train: float

    def cost(self, tokens: Mapping[str, int]) -> float:
        """Returns the cost of tokens by kind, in US dollars."""
        prices: dict[str, float] = vars(self)
        return sum(prices[kind] * count for kind, count in tokens.items()) / MILLION


def read_prices(path: str, model: str) -> Prices:
    """Returns the prices of a model from a table {model: {prefill, sample, train}}. Raises ConfigError."""
    try:
        table: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"--rented-prices {path} cannot be read: {error}") from error
    if not isinstance(table, dict) or model not in table:
        known = ", ".join(table) if isinstance(table, dict) else "none"
        raise ConfigError(f"--rented-prices {path} has no prices of {model}; its models: {known or 'none'}")
    try:
        prices = Prices(**{kind: float(table[model][kind]) for kind in KINDS})
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(
            f"--rented-prices {path}: {model} needs {', '.join(KINDS)}, in US dollars for a million tokens: {error!r}"
        ) from error
    if not all(0 <= getattr(prices, kind) < float("inf") for kind in KINDS):
        raise ConfigError(
            f"--rented-prices {path}: the prices of {model} must be numbers of dollars, 0 or more"
        )
    return prices


def usage_of(run_dir: str | Path) -> dict[str, dict[str, int]]:
    """Returns token counts by role and kind, over all processes of a run."""
    usage: dict[str, dict[str, int]] = {}
    for role, tokens in _files(Path(run_dir) / FOLDER):
        counts = usage.setdefault(role, dict.fromkeys(KINDS, 0))
        for kind, count in tokens.items():
            counts[kind] += count
    return usage


def cost_of(run_dir: str | Path, prices: Prices) -> float:
    """Returns the cost of a run so far, in US dollars."""
    return sum(prices.cost(tokens) for tokens in usage_of(run_dir).values())


def write_prices(run_dir: str | Path, prices: Prices, model: str) -> None:
    """Writes the prices next to the counts, for other programs."""
    path = Path(run_dir) / FOLDER / PRICES
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps({"model": model, **asdict(prices)}))


def rented_usage(run_dir: str | Path) -> dict[str, Any] | None:
    """Returns token counts by role and kind, and US dollars if prices are known; None for a run that rents nothing.

    Returns:
        `{"tokens": {"serving": {"prefill": 8, "sample": 6, "train": 0}}, "cost_usd": 0.01}`
    """
    usage, prices = usage_of(run_dir), _known_prices(run_dir)
    if not usage:
        return None
    if prices is None:
        return {"tokens": usage}
    return {"tokens": usage, "cost_usd": sum(prices.cost(tokens) for tokens in usage.values())}


def _known_prices(run_dir: str | Path) -> Prices | None:
    path = Path(run_dir) / FOLDER / PRICES
    if not path.is_file():
        return None
    known = json.loads(path.read_text(encoding="utf-8"))
    return Prices(**{kind: float(known[kind]) for kind in KINDS})


def summary(run_dir: str | Path) -> str | None:
    """Returns `12,000 prefill, 800 sample, 9,000 train tokens, $0.01`; None for a run that rents nothing."""
    usage = usage_of(run_dir)
    if not usage:
        return None
    totals = {kind: sum(tokens[kind] for tokens in usage.values()) for kind in KINDS}
    text = ", ".join(f"{count:,} {kind}" for kind, count in totals.items()) + " tokens"
    prices = _known_prices(run_dir)
    return text if prices is None else f"{text}, ${prices.cost(totals):.4f}"


def _files(folder: Path) -> Iterator[tuple[str, dict[str, int]]]:
    for path in sorted(folder.glob("[!.]*.json")):
        if path.name != PRICES:
            content = json.loads(path.read_text(encoding="utf-8"))
            yield str(content["role"]), _tokens(content)


def _tokens(content: Mapping[str, Any]) -> dict[str, int]:
    return {kind: int(content["tokens"].get(kind, 0)) for kind in KINDS}
