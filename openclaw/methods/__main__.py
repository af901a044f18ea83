"""`python -m openclaw.methods PATH`: is this function a method? See `trial.py`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from openclaw.common.version import add_version
from openclaw.errors import ConfigError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.methods.method import Method
from openclaw.methods.trial import tried


def main(words: Sequence[str] | None = None) -> int:
    """Prints what the method makes of each case. Returns 1, with the reason on stderr, where a run could not use it."""
    parser = argparse.ArgumentParser(prog="python -m openclaw.methods", description=__doc__)
    parser.add_argument(
        "path", help="the method, as --method-path takes it: file.py:function or module:function"
    )
    parser.add_argument("--model-path", help="the policy's folder: methods that use hints render them for it")
    add_version(parser)
    args = parser.parse_args(words)
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
