"""Compiles a JSON schema from standard input within a limit on time and memory; its own process, because a compilation
in a thread cannot be stopped.

    python -I schema_check.py SECONDS OPTIONS

OPTIONS: llguidance's options for JSON schemas, as JSON.

The process exits with 0 if the compilation ends, even with an error. The kernel kills it after SECONDS of processor time.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import sys

MOST_BYTES = 4 << 30
"""Most address space; the compilation of a large schema uses less than 1 GiB."""


def main() -> None:
    seconds, options = int(sys.argv[1]), json.loads(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with contextlib.suppress(OSError, ValueError):  # macOS has no limit on address space
        resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES))
    os.nice(10)
    from llguidance import LLMatcher

    with contextlib.suppress(ValueError):
        LLMatcher.validate_grammar(LLMatcher.grammar_from_json_schema(sys.stdin.read(), defaults=options))


if __name__ == "__main__":
    main()
