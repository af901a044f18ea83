"""A Python that keeps what its snippets define, in a box."""

from __future__ import annotations

import functools
import json
import time
from dataclasses import dataclass
from pathlib import Path

from slime.agents.sandbox.box import Box, require_sandbox
from slime.agents.sandbox.command import box_python
from slime.agents.sandbox.limits import Limits
from slime.errors import SandboxError

WORKER = Path(__file__).with_name("python_worker.py")
START_SECONDS = 60.0
SIGNALS = {137: "it was killed", 139: "it crashed (segmentation fault)", 152: "it used up its processor time"}
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Ran:
    """What became of a snippet.

    Attributes:
        output: what it printed, and the value of a last line that is an expression.
        error: one line, or None. That of the code (an exception), or that a limit ended it.
        restarted: the interpreter was ended and what earlier snippets defined is gone.
        seconds: of the call.
    """

    output: str
    error: str | None
    restarted: bool
    seconds: float

    def text(self) -> str:
        """Output and error, for a model."""
        parts = [self.output.rstrip("\n"), f"Error: {self.error}" if self.error else ""]
        return "\n".join(part for part in parts if part)


class PythonSession:
    """Starts its box with the first snippet. Use it from one thread at a time, and close it."""

    def __init__(self, limits: Limits | None = None) -> None:
        """Raises ConfigError where there is no sandbox."""
        require_sandbox()
        self.limits = limits or Limits()
        self.box: Box | None = None
        self.number = 0

    def start(self) -> None:
        """Starts the box where there is none. Raises SandboxError: it did not come up, which no code is to blame for."""
        if self.box is not None:
            return
        python, packages = _python()
        source = [python, "-I", "-S", "-c", WORKER.read_text(), str(self.limits.output_chars)]
        box = Box(source, self.limits, packages, ONE_THREAD)
        if box.read_line(START_SECONDS, 100) != b'{"number": 0}':
            code = box.exit_code()
            box.close()
            raise SandboxError(f"Python did not start in its sandbox (exit code {code})")
        self.box = box

    def run(self, code: str, seconds: float = 10.0) -> Ran:
        """Runs a snippet for at most `seconds`.

        Raises:
            SandboxError: the box did not come up.
        """
        self.start()
        assert self.box is not None
        self.number += 1
        began = self.box.busy_since = time.monotonic()
        try:
            self.box.send(json.dumps({"number": self.number, "code": code}).encode() + b"\n")
            line = self.box.read_line(seconds, 16 * self.limits.output_chars + 4096)
        except BrokenPipeError:
            line = None
        took = time.monotonic() - began
        found = self._answer(line)
        if found is not None:
            self.box.busy_since = None
            return Ran(found[0], found[1], restarted=False, seconds=took)
        reason = self._reason(line is not None, took >= seconds, seconds)
        self.close()
        return Ran("", f"{reason}; the interpreter was restarted, its variables are gone", True, took)

    def _answer(self, line: bytes | None) -> tuple[str, str | None] | None:
        """Output and error; None where the line is not the worker's answer to this snippet."""
        try:
            found = json.loads(line or b"")
            output, error = found["output"], found["error"]
        except (ValueError, TypeError, KeyError):
            return None
        fits = found["number"] == self.number and isinstance(output, str) and isinstance(error, str | None)
        return (output, error) if fits else None

    def _reason(self, answered: bool, late: bool, seconds: float) -> str:
        assert self.box is not None
        code = self.box.exit_code(0.0 if late or answered else 1.0)
        if self.box.over is not None:
            return self.box.over
        if answered or (code is None and not late):
            return "it disturbed the interpreter's own channel"
        if code is None:
            return f"it ran longer than {seconds:g} s"
        return SIGNALS.get(code, f"it ended the interpreter (exit code {code})")

    def close(self) -> None:
        """Ends the box; the next snippet starts another."""
        if self.box is not None:
            self.box.close()
            self.box = None

    def __enter__(self) -> PythonSession:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


@functools.cache
def _python() -> tuple[str, dict[Path, str]]:
    return box_python()
