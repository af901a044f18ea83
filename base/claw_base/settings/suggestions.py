"""Suggestions for an unknown flag."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping


def suggestion(word: str, parser: argparse.ArgumentParser, others: Mapping[str, str]) -> str | None:
    """Returns our name of another program's flag, else the parser's flag with the most similar spelling; None if
    there is none.

    Args:
        word: the unknown flag, with or without =VALUE.
        others: other programs' names of flags, mapped to ours.
    """
    name = word.split("=", 1)[0]
    if name in others:
        return f"here it is {others[name]}"
    known = [option for action in parser._actions for option in action.option_strings]
    close = difflib.get_close_matches(name, known, n=1) if name.startswith("--") else []
    return f"did you mean {close[0]}?" if close else None
