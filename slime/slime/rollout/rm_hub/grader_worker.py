"""Worker process that compares two mathematical answers by algebra.

Started by `grader`, which kills it if it hangs. Reads lines of JSON {"answer", "label"} and writes {"same":
true | false}. It is run as a file and imports nothing of slime, so that it starts fast. Comparison and LaTeX
parsing use the library math-verify.
"""

from __future__ import annotations

import json
import resource
import sys

from math_verify import parse, verify

SECONDS = 3
"""Time limit in seconds for parsing each side and for comparing them."""
MEMORY = 4 << 30
"""Bytes of address space; a number like 9^(9^9) must not exhaust the machine's memory."""


def same(answer: str, label: str) -> bool:
    """Returns whether two answers in LaTeX or plain text are equal; decimals are compared to 6 digits."""
    expected = parse(f"${label}$", parsing_timeout=SECONDS, raise_on_error=False)
    parsed = parse(f"${answer}$", parsing_timeout=SECONDS, raise_on_error=False)
    return bool(verify(expected, parsed, timeout_seconds=SECONDS, raise_on_error=False))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        pair = json.loads(line)
        try:
            answer = same(pair["answer"], pair["label"])
        except (MemoryError, RecursionError, OverflowError):
            answer = False
        print(json.dumps({"same": answer}), flush=True)


if __name__ == "__main__":
    main()
