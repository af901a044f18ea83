"""Failure and success in the plain text of a tool result: what command lines, compilers, test runners and tools write.

A line counts where the program itself writes it: at its beginning, in its form. Others count only where a report
begins or in a text too short to be a document, because a text that a tool has read may speak of errors too.
"""

from __future__ import annotations

import re

from openclaw.judge.rules.wordings import TOOLS

_NO_FAILURE = TOOLS["no_failure"]
_END_LENGTH = 10_000
"""Characters read of the beginning and of the end of a long result."""
_SHORT_LENGTH, _SHORT_LINES = 400, 3
"""A text of at most so many characters and lines can be a report as a whole."""
_DOCUMENT = re.compile(r"\s*(?:#|```|<[!a-z]|\d+[.)] |[-*] |\||def |class |import |from |function |//)")
_HARMLESS = (
    r"(?!\s*(?:warning|note|info|hint|debug|nothing to be done|entering|leaving|done|ok|using|running|listening"
    r"|started|ready|serving|version|usage)\b)"
)
_TALKATIVE = frozenset({"make", "npm", "file", "wc"})
"""Programs that write their name before much else than failures."""
_HELPERS = ("bash", "gzip", "xargs", "[mg]awk")
_SUMMARY_LINES = 15


def text_failed(text: str) -> str | None:
    """Why a tool's plain text is a failure, in a few words; None where nothing says so."""
    read = _NO_FAILURE.sub(" ", _ends(text))
    found = TOOLS["failure"].search(read)
    if found is None and is_report(read):
        first = read.strip().split("\n", 1)[0]
        found = TOOLS["report"].search(first)
    return None if found is None else f"error text: {found.group().strip()[:60]}"


def text_succeeded(text: str) -> str | None:
    """What in a tool's plain text says that it worked; None where nothing does."""
    found = TOOLS["success"].search(_ends(text))
    return None if found is None else f"success text: {found.group().strip()[:60]}"


def summary_failed(text: str) -> str | None:
    """Why the last lines, the summary of a check, prove a failure whatever the exit code was."""
    last = "\n".join(_ends(text).rstrip().split("\n")[-_SUMMARY_LINES:])
    found = TOOLS["summary_failure"].search(_NO_FAILURE.sub(" ", last))
    return None if found is None else f"summary: {found.group().strip()[:60]}"


def own_failure(text: str, programs: list[str]) -> str | None:
    """The first line where the shell or one of the programs, named in front, complains."""
    named = dict.fromkeys(name for name in programs if name not in _TALKATIVE)
    names = "|".join([*map(re.escape, named), *_HELPERS])
    shell = r"(?:-?(?:ba|z|da)?sh|\S+\.sh): (?:-c: )?(?:line )?\d*:? ?"
    git = "|(?:fatal|error): " if "git" in named else ""
    own = rf"^\W{{0,4}}(?:{shell}\S|(?:\S*/)?(?:{names})(?:\[\d+\])?: {_HARMLESS}\S{git})"
    first = next((line for line in text.split("\n") if line.strip()), "")
    found = re.match(own, first, re.IGNORECASE)
    return f"error text: {first.strip()[:60]}" if found else None


def is_report(text: str) -> bool:
    """Short, and not the beginning of a document, a listing or a program."""
    bare = text.strip()
    return len(bare) <= _SHORT_LENGTH and bare.count("\n") < _SHORT_LINES and not _DOCUMENT.match(bare)


def _ends(text: str) -> str:
    return text if len(text) <= 2 * _END_LENGTH else f"{text[:_END_LENGTH]}\n{text[-_END_LENGTH:]}"
