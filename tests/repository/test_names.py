"""Runtime and trainer name no method, track or provider: differences are outside, behind hooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT
from tests.imports import ROOTS

METHODS = (
    r"(?i:topk[_-]select|opd[_-]topk|(?:combine|topk)[_-]w(?:[_-](?:rl|opd))?\b|binary[_-]rl)"
    r"|(?i:hybrid method|--(?:topk|combine)-)"
    r"|openclaw_(?:rl|opd|combine)"
)
TRACKS = r"(?i:(?:terminal|gui|swe|toolcall)[_-]rl)"
CLOUDS = r"(?i:tinker|fireworks)"
OUTSIDE = "|".join((METHODS, TRACKS, CLOUDS))
FORBIDDEN = {"openclaw": re.compile(OUTSIDE), "slime": re.compile(f"{OUTSIDE}|(?i:openclaw)")}
TEXTS = {".py", ".tsv", ".md", ".toml", ".txt", ".sh"}


def texts(package: str) -> list[Path]:
    """Sources, tables and READMEs of the package."""
    return [path for path in sorted((ROOTS[package] / package).rglob("*.*")) if path.suffix in TEXTS]


@pytest.mark.parametrize("package", FORBIDDEN)
def test_no_method_track_or_cloud_is_named(package: str) -> None:
    naming = {
        path.relative_to(ROOT).as_posix(): sorted(found)
        for path in texts(package)
        if (found := set(FORBIDDEN[package].findall(path.read_text())))
    }
    assert naming == {}


def test_a_name_is_found_in_any_spelling() -> None:
    for text in ("topk_select", "TopK-Select", "--combine-w", "import openclaw_rl", "gui-rl", "Tinker"):
        assert FORBIDDEN["openclaw"].search(text), text
    assert FORBIDDEN["slime"].search("OPENCLAW_URL") and not FORBIDDEN["openclaw"].search("OPENCLAW_URL")
