"""`python -m openclaw.methods PATH`: checks a method by calling it on example turns. See `trial.py`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from claw_base.settings.command_line import parse
from claw_base.settings.declare import REQUIRED, flag
from openclaw.common.version import VERSION
from openclaw.errors import ConfigError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import Method
from openclaw.methods.trial import tried


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The method to try."""

    path: str = flag(
        REQUIRED,
        "the method, as in --method-path: file.py:function or module:function",
        positional=True,
    )
    model_path: str | None = flag(
        None, "folder of the policy, whose template renders prompts with hints", unit="path"
    )


def main(words: Sequence[str] | None = None) -> int:
    """Prints the method's result for each case. Returns 1, with the reason on stderr, if a run could not use it."""
    args = parse(Trial, words, "python -m openclaw.methods", __doc__, VERSION)
    try:
        method = Method.load(args.path)
        prompts = HintedPrompts.of(args.model_path) if args.model_path else None
        for case, made in tried(method, prompts, {}):
            print(f"{case.name}: {made}")
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
