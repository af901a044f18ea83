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
    shown_a, shown_b = (show_version(store, run_dir, number) for number in (first, second))
    if shown_a is None or shown_b is None:
        return None
    parents = {one.version: one.parent for one in store.versions.all()}
    lines = [_lineage(parents, number) for number in (first, second)]
    common = max(set(lines[0]) & set(lines[1]), default=None)
    learned = store.versions.learned_by([*lines[0], *lines[1]])

    def since_common(lineage: list[int]) -> list[dict[str, Any]]:
        own = [one for one in lineage if common is None or one > common]
        return [{"version": one, **learned.get(one, {"turns": 0, "good": 0, "bad": 0})} for one in own]

    measured = [one.get("measurements") or {} for one in (shown_a, shown_b)]
    return {
        "object": "versions_diff",
        "a": shown_a,
        "b": shown_b,
        "common": common,
        "only_a": since_common(lines[0]),
        "only_b": since_common(lines[1]),
        "measurements": {
            name: [one.get(name) for one in measured] for name in sorted(set(measured[0]) | set(measured[1]))
        },
    }


def _lineage(parents: dict[int, int | None], number: int) -> list[int]:
    """Returns the version and its ancestors, oldest first."""
    lineage: list[int] = []
    at: int | None = number
    while at is not None and at in parents and at not in lineage:
        lineage.append(at)
        at = parents[at]
    return lineage[::-1]


def relation(a: int, b: int, common: int | None) -> str:
    """Returns how two versions are related. `common`: their newest common ancestor, None if there is none."""
    if common is None:
        return "no common ancestor is recorded"
    if a == b:
        return "the same version"
    if common in (a, b):
        return f"{b if common == a else a} descends from {common}"
    return f"both descend from {common}"


def as_text(comparison: dict[str, Any]) -> str:
    """Returns text for a terminal: the differences, then every prompt with both answers."""
    a, b = comparison["a"]["version"], comparison["b"]["version"]
    status_a, status_b = comparison["a"]["status"], comparison["b"]["status"]
    lines = [f"version {a} ({status_a}), version {b} ({status_b}): {relation(a, b, comparison['common'])}"]
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


def _labelled(label: str, text: str) -> str:
    return f"[{label}] " + text.replace("\n", "\n    ")
