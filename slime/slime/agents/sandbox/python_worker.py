"""Runs inside the box: executes snippets one after another in one namespace. The source is handed to `python -c`.

Lines of JSON in {"number", "code"}, and out {"number", "output", "error"}. What a snippet leaves running is killed.
"""

from __future__ import annotations

import ast
import contextlib
import json
import os
import signal
import sys

RESULTS = os.fdopen(os.dup(1), "w")
ORDERS = os.fdopen(os.dup(0), "r")
LONGEST = int(sys.argv[1])
NAMESPACE: dict[str, object] = {"__name__": "__main__", "__builtins__": __builtins__}


def capture() -> int:
    """A file without a name or place that takes what is printed, by any process; a full disk cannot hinder it."""
    captured = os.memfd_create("output")
    for descriptor in (1, 2):
        os.dup2(captured, descriptor)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)
    return captured


def output_of(captured: int) -> str:
    size = os.fstat(captured).st_size
    if size <= 4 * LONGEST:
        text = os.pread(captured, size, 0).decode("utf-8", "replace")
        if len(text) <= LONGEST:
            return text
    half = LONGEST // 2
    start = os.pread(captured, 4 * half, 0).decode("utf-8", "replace")[:half]
    end = os.pread(captured, 4 * half, max(size - 4 * half, 0)).decode("utf-8", "replace")[-half:]
    return f"{start}\n... [{size} bytes in all] ...\n{end}"


def run(code: str) -> str | None:
    """None, or what went wrong. The value of a last line that is an expression is printed, as in a console."""
    try:
        tree = ast.parse(code, "<code>")
        end = tree.body[-1] if tree.body else None
        last = end if isinstance(end, ast.Expr) else None
        if last is not None:
            tree.body.pop()
        exec(compile(tree, "<code>", "exec", dont_inherit=True), NAMESPACE)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), "<code>", "eval", dont_inherit=True), NAMESPACE)
            if value is not None:
                print(repr(value))
        sys.stdout.flush()
    except SystemExit:
        pass
    except BaseException as error:
        return described(error)
    return None


def described(error: BaseException) -> str:
    """The error in one line, with the line of the code."""
    where = error.lineno if isinstance(error, SyntaxError) else None
    at = error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename == "<code>":
            where = at.tb_lineno
        at = at.tb_next
    try:
        message = str(getattr(error, "msg", None) or error)
    except BaseException:
        message = ""
    line = f"line {where}: " if where else ""
    return f"{line}{type(error).__name__}{': ' if message else ''}{message}"[:LONGEST]


def end_all_others() -> None:
    """Everything in the box but its first process and this one."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)


def main() -> None:
    sys.path.append("/packages")
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    RESULTS.write('{"number": 0}\n')
    RESULTS.flush()
    for line in ORDERS:
        order = json.loads(line)
        captured = capture()
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = sys.stdout
        error = run(order["code"])
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        sys.stdout = sys.stderr = (
            None  # what could not be written is not written into the next snippet's file
        )
        end_all_others()
        RESULTS.write(
            json.dumps({"number": order["number"], "output": output_of(captured), "error": error}) + "\n"
        )
        RESULTS.flush()
        os.close(captured)


main()
