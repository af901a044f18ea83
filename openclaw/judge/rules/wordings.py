"""Reads the wordings of phrases/*.toml: what people write about an answer, as regular expressions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent / "phrases"
_PART = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Wordings:
    """One file. parts: expressions that several wordings share; lists: one pattern a list, by name."""

    parts: Mapping[str, str]
    lists: Mapping[str, re.Pattern[str]]

    def __getitem__(self, name: str) -> re.Pattern[str]:
        return self.lists[name]

    @classmethod
    def read(cls, name: str, flags: re.RegexFlag = re.NOFLAG) -> Wordings:
        """`phrases/<name>.toml`."""
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        parts: dict[str, str] = {}
        for key, value in content.get("parts", {}).items():
            parts[key] = _PART.sub(lambda found: parts[found[1]], "".join(value))
        lists = {
            key: re.compile(
                "|".join(_PART.sub(lambda found: parts[found[1]], "".join(one)) for one in entries),
                flags,
            )
            for key, entries in content["lists"].items()
        }
        return cls(parts, lists)


ENGLISH = Wordings.read("en")
ENGLISH_ASIDES = Wordings.read("en_asides")
ENGLISH_WORK = Wordings.read("en_work")
ENGLISH_REQUESTS = Wordings.read("en_requests")
CHINESE = Wordings.read("zh")
LISTED = {name: Wordings.read(name) for name in ("de", "es", "fr", "it", "ja", "nl", "pl", "pt", "ru", "tr")}
"""The languages with one small file each."""
SIGNS = Wordings.read("signs")
TOOLS = Wordings.read("tools", re.MULTILINE)
RESULTS = Wordings.read("results")
