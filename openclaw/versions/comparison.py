"""The difference of two versions: lineage, turns learned, and the gate's measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from openclaw.store import RolloutStore
from openclaw.versions.listing import show_version


def compare_versions(
    store: RolloutStore, run_dir: Path | None, first: int, second: int
) -> dict[str, Any] | None:
    """Returns `{"a", "b", "common", "only_a", "only_b", "measurements"}`; None if a version does not exist.

    `common`: the newest common ancestor, which may be one of them. `only_a`, `only_b`: the versions after it up to
    each, `{"version", "turns", "good", "bad"}`, with the turns that each learned from. `measurements`: name to `[of
    a, of b]`.
    """
    of_a, of_b = (show_version(store, run_dir, number) for number in (first, second))
    if of_a is None or of_b is None:
        return None
    parents = {one.version: one.parent for one in store.versions.all()}
    lines = [_line(parents, number) for number in (first, second)]
    common = max(set(lines[0]) & set(lines[1]), default=None)
    learned = store.versions.learned_by([*lines[0], *lines[1]])

    def behind(line: list[int]) -> list[dict[str, Any]]:
        own = [one for one in line if common is None or one > common]
        return [{"version": one, **learned.get(one, {"turns": 0, "good": 0, "bad": 0})} for one in own]

    measured = [one.get("measurements") or {} for one in (of_a, of_b)]
    return {
        "object": "versions_diff",
        "a": of_a,
        "b": of_b,
        "common": common,
        "only_a": behind(lines[0]),
        "only_b": behind(lines[1]),
        "measurements": {
            name: [one.get(name) for one in measured] for name in sorted(set(measured[0]) | set(measured[1]))
        },
    }


def _line(parents: dict[int, int | None], number: int) -> list[int]:
    """Returns the version and its ancestors, oldest first."""
    line: list[int] = []
    at: int | None = number
    while at is not None and at in parents and at not in line:
        line.append(at)
        at = parents[at]
    return line[::-1]


def as_text(comparison: dict[str, Any]) -> str:
    """Returns text for a terminal: the differences, then every prompt with both answers."""
    a, b = comparison["a"]["version"], comparison["b"]["version"]
    lines = [
        f"{a} ({comparison['a']['status']}) and {b} ({comparison['b']['status']}); both come from {comparison['common']}"
    ]
    for name, number in (("only_a", a), ("only_b", b)):
        for one in comparison[name]:
            counts = f"{one['turns']} turns, {one['good']} good, {one['bad']} bad"
            lines.append(f"  on the way to {number}: version {one['version']} learned from {counts}")
    for name, pair in comparison["measurements"].items():
        lines.append(f"  {name}: " + ", ".join("-" if one is None else f"{one:.4g}" for one in pair))
    for one in comparison.get("answers", []):
        lines += ["", f"> {one['prompt']}"]
        if one["same"]:
            lines.append(_labelled(f"{a} and {b}", one["a"]))
        else:
            lines += [_labelled(str(a), one["a"]), _labelled(str(b), one["b"])]
    return "\n".join(lines)


def _labelled(who: str, text: str) -> str:
    return f"[{who}] " + text.replace("\n", "\n    ")
