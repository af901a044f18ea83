"""Runs inside the sandbox: executes snippets one after another in one namespace. The source is passed to `python -c`.
The input is a line "number length", then the code. The output is a line "number length length" with the lengths of
output and error (-1: none), then both texts. Processes left by a snippet are killed. Slow imports are avoided,
because sandboxes start often."""

import _ast
import os
import sys

RESULTS = os.fdopen(os.dup(1), "wb")
ORDERS = os.fdopen(os.dup(0), "rb")
CAPTURED = os.dup(2)
"""A file without a name, which the sandbox gets as its standard error; a full disk cannot prevent writing to it."""
KILL = 9
ONLY_TREE = 0x400  # ast.PyCF_ONLY_AST
MAX_CHARACTERS = int(sys.argv[1])
NAMESPACE: "dict[str, object]" = {"__name__": "__main__", "__builtins__": __builtins__}


def capture() -> None:
    """Redirects the output of all processes to the empty file of outputs."""
    os.ftruncate(CAPTURED, 0)
    os.lseek(CAPTURED, 0, os.SEEK_SET)
    for descriptor in (1, 2):
        os.dup2(CAPTURED, descriptor)
    nothing = os.open("/dev/null", os.O_RDWR)
    os.dup2(nothing, 0)
    os.close(nothing)


def output_of() -> str:
    size = os.fstat(CAPTURED).st_size
    if size <= 4 * MAX_CHARACTERS:
        text = os.pread(CAPTURED, size, 0).decode("utf-8", "replace")
        if len(text) <= MAX_CHARACTERS:
            return text
    half = MAX_CHARACTERS // 2
    start = os.pread(CAPTURED, 4 * half, 0).decode("utf-8", "replace")[:half]
    end = os.pread(CAPTURED, 4 * half, max(size - 4 * half, 0)).decode("utf-8", "replace")[-half:]
    return f"{start}\n... [{size} bytes in all] ...\n{end}"


def run(code: str) -> str | None:
    """Returns None, or the error. The value of a last line that is an expression is printed, as in a console."""
    try:
        tree = compile(code, "<code>", "exec", ONLY_TREE, dont_inherit=True)
        end = tree.body[-1] if tree.body else None
        last = end if isinstance(end, _ast.Expr) else None
        if last is not None:
            tree.body.pop()
        exec(compile(tree, "<code>", "exec", dont_inherit=True), NAMESPACE)
        if last is not None:
            value = eval(compile(_ast.Expression(last.value), "<code>", "eval", dont_inherit=True), NAMESPACE)
            if value is not None:
                print(repr(value))
        sys.stdout.flush()
    except SystemExit:
        pass
    except BaseException as error:
        return described(error)
    return None


def described(error: BaseException) -> str:
    """Returns the error in one line, with the line of the code."""
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
    return f"{line}{type(error).__name__}{': ' if message else ''}{message}"[:MAX_CHARACTERS]


def end_all_others() -> None:
    """Kills everything in the sandbox but its first process and this one."""
    try:
        os.kill(-1, KILL)
    except ProcessLookupError:
        pass
    try:
        while True:
            os.waitpid(-1, 0)
    except ChildProcessError:
        pass


def answer(number: int, output: str, error: str | None) -> None:
    printed = output.encode("utf-8", "replace")
    wrong = b"" if error is None else error.encode("utf-8", "replace")
    RESULTS.write(b"%d %d %d\n" % (number, len(printed), -1 if error is None else len(wrong)))
    RESULTS.write(printed + wrong)
    RESULTS.flush()


def main() -> None:
    sys.path.append("/packages")
    answer(0, "", None)
    for line in ORDERS:
        number, length = (int(word) for word in line.split())
        code = ORDERS.read(length).decode("utf-8", "replace")
        capture()
        sys.stdout = os.fdopen(1, "w", encoding="utf-8", errors="replace", closefd=False)
        sys.stderr = sys.stdout
        error = run(code)
        try:
            sys.stdout.flush()
        except (OSError, ValueError):
            pass
        # unwritten output must not go to the next snippet's file
        sys.stdout = sys.stderr = None
        end_all_others()
        answer(number, output_of(), error)
        # its memory
        os.ftruncate(CAPTURED, 0)


main()
