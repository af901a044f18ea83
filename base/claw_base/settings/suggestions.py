"""Suggestions in place of an unknown flag."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Mapping


def suggestion(word: str, parser: argparse.ArgumentParser, others: Mapping[str, str]) -> str | None:
    """Our name of a flag of another program, else the flag of the parser that is spelt alike; None: there is none.

    Args:
        word: the unknown flag, with or without =VALUE.
        others: what other programs call a flag, and which of ours that is.
    """
    name = word.split("=", 1)[0]
    if name in others:
        return f"here it is {others[name]}"
    known = [option for action in parser._actions for option in action.option_strings]
    close = difflib.get_close_matches(name, known, n=1) if name.startswith("--") else []
    return f"did you mean {close[0]}?" if close else None
