"""What the rules look for and in how much of a text: bounded texts, and the wordings of phrases/*.toml as expressions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

END_CHARACTERS = 3_000
"""Of the beginning and of the end of a text. What people say, and what tools say of how they ended, stands there."""
RUN_CHARACTERS = 40
"""Of white space, or of one character again and again."""
_RUN = re.compile(rf"(\s{{{RUN_CHARACTERS}}})\s+|((.)\3{{{RUN_CHARACTERS - 1}}})\3+", re.DOTALL)


def bounded(text: str) -> str:
    """The text as the rules read it: without its middle where it is very long, and with long runs cut short."""
    if len(text) > 2 * END_CHARACTERS:
        text = f"{text[:END_CHARACTERS]}\n{text[-END_CHARACTERS:]}"
    return _RUN.sub(lambda run: run[1] or run[2], text)


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
