"""The runtime and the trainer know no method, track or cloud by name: who differs lies outside, and hooks lead there."""

from __future__ import annotations

import re

import pytest

from tests import ROOT
from tests.imports import files

METHODS = (
    r"(?i:topk[_-]select|opd[_-]topk|(?:combine|topk)[_-]w(?:[_-](?:rl|opd))?\b|binary[_-]rl)"
    r"|openclaw_(?:rl|opd|combine)"
)
TRACKS = r"(?i:(?:terminal|gui|swe|toolcall)[_-]rl)"
CLOUDS = r"(?i:tinker|fireworks)"
OUTSIDE = "|".join((METHODS, TRACKS, CLOUDS))
FORBIDDEN = {"openclaw": re.compile(OUTSIDE), "slime": re.compile(f"{OUTSIDE}|(?i:openclaw)")}
STILL: dict[str, set[str]] = {
    "openclaw": {"openclaw/methods/method.py"},
    "slime": {
        f"slime/slime/{name}.py"
        for name in (
            "arguments/groups/algorithm",
            "arguments/groups/distillation",
            "arguments/rules/algorithm",
            "arguments/rules/distillation",
            "arguments/upstream/refused",
            "losses/built_in",
            "losses/custom",
            "losses/distillation",
            "losses/spec",
            "losses/teacher_topk",
            "training/core/batch",
            "training/core/metrics",
            "training/core/teacher",
            "training/core/teacher_data",
        )
    },
}
"""Files that still name one. This list only gets shorter: an entry that is not needed any more fails the test."""


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_method_track_or_cloud_is_named(package: str) -> None:
    naming = {
        path.relative_to(ROOT).as_posix(): sorted(found)
        for path in files(package).values()
        if (found := set(FORBIDDEN[package].findall(path.read_text())))
    }
    assert {path: words for path, words in naming.items() if path not in STILL[package]} == {}
    assert STILL[package] - set(naming) == set(), "no longer needed in the list"
