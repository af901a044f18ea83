"""The wordings of phrases/*.toml as regular expressions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "phrases"
_PART = re.compile(r"\{([a-z_]+)\}")


class Wordings(dict[str, re.Pattern[str]]):
    """The lists of one file, each as one pattern. texts: the expressions of all lists. parts: patterns that several
    lists share.

    A pattern is compiled when it is first looked up: all together take 0.13 s, and many processes that import the rules
    judge nothing.
    """

    texts: Mapping[str, str]
    parts: Mapping[str, str]
    flags: re.RegexFlag

    @classmethod
    def read(cls, name: str, flags: re.RegexFlag = re.NOFLAG) -> Wordings:
        """Reads `phrases/<name>.toml`."""
        content = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
        parts: dict[str, str] = {}

        def whole(entry: str | list[str]) -> str:
            return _PART.sub(lambda wordings: parts[wordings[1]], "".join(entry))

        for key, value in content.get("parts", {}).items():
            parts[key] = whole(value)
        wordings = cls()
        wordings.texts = {key: "|".join(map(whole, entries)) for key, entries in content["lists"].items()}
        wordings.parts, wordings.flags = parts, flags
        return wordings

    def __missing__(self, name: str) -> re.Pattern[str]:
        pattern = self[name] = re.compile(self.texts[name], self.flags)
        return pattern


ENGLISH = Wordings.read("en")
ENGLISH_ASIDES = Wordings.read("en_asides")
ENGLISH_WORK = Wordings.read("en_work")
ENGLISH_REQUESTS = Wordings.read("en_requests")
CHINESE = Wordings.read("zh")
LISTED = {
    name: Wordings.read(name)
    for name in ("ar", "de", "es", "fr", "hi", "it", "ja", "nl", "pl", "pt", "ru", "tr")
}
"""The languages with one small file each."""
SIGNS = Wordings.read("signs")
TOOLS = Wordings.read("tools", re.MULTILINE)
RESULTS = Wordings.read("results")
