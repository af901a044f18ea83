"""Runs inside a fresh sandbox: the functions of a task's test_outputs.py in order, or its test.sh. The code is passed
to `python -c`.

The input is a line of JSON {"key", "seconds", "script", "source"}. `source` is the text of test_outputs.py, which is
not stored as a file, so that no program started by a test can read it. The output is {"key", "ready": true} and at
the end {"key",
"results", "late"}, of a script {"key", "files", "printed", "late"}. Tests may start programs that the agent has left.
Therefore only this process has the key and the output channel: it cannot be traced, its descriptors cannot be opened,
and children get other descriptors.
"""

import ctypes
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import time

LOGS = "/logs/verifier"
TESTS = "/tests/test_outputs.py"
LONGEST = 1 << 16
PR_SET_DUMPABLE = 4


class Late(BaseException):
    """The time limit is reached. It is not an Exception, so that no `except Exception` of a test catches it."""


def main() -> None:
    order = json.loads(sys.stdin.readline())
    if sys.executable.startswith("/.box/"):  # on an image, where this Python cannot be started by its name
        sys.executable = shutil.which("python3") or ""
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0):
        sys.exit("this process can be traced")
    results = os.fdopen(os.dup(1), "w")
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    results.write(json.dumps({"key": order["key"], "ready": True}) + "\n")
    results.flush()
    seconds = float(order["seconds"])
    if order["script"]:
        report = run_script(seconds)
    else:
        outcomes, late = run_all(order.pop("source"), seconds)
        report = {"results": outcomes, "late": late}
    results.write(json.dumps({"key": order["key"], **report}) + "\n")
    results.flush()


def run_script(seconds: float) -> dict[str, object]:
    """Runs /tests/test.sh as Harbor does, ends the processes that it leaves, and reads its result files. Returns no
    files if a signal ended it, or if the agent's programs could have written them."""
    command = f"(/tests/test.sh) > {LOGS}/test-stdout.txt 2>&1"
    script = subprocess.Popen(["/bin/bash", "-c", command], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        script.wait(seconds)
        late = False
    except subprocess.TimeoutExpired:
        late = True
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        pass
    ended = late or 0 <= script.returncode <= 128
    writable = os.stat(LOGS).st_mode & 0o200
    files = {
        name: text_of(f"{LOGS}/{name}") if ended and writable else None
        for name in ("reward.json", "reward.txt")
    }
    return {"files": files, "printed": (text_of(f"{LOGS}/test-stdout.txt") or "")[-500:], "late": late}


def text_of(path: str) -> str | None:
    """Returns the end of a regular file; None if it does not exist."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or not about.st_mode & 0o200:
                return None
            file.seek(max(0, about.st_size - LONGEST))
            return file.read(LONGEST).decode(errors="replace")
    except OSError:
        return None


def run_all(source: str, seconds: float) -> tuple[list[list[str | None]], bool]:
    """Returns [name, error or None] of each test, and whether the time limit was reached first."""
    results: list[list[str | None]] = []
    until = time.monotonic() + seconds
    signal.signal(signal.SIGALRM, ring)
    sys.path.insert(0, "/tests")
    name = "test_outputs.py"
    try:
        signal.setitimer(
            signal.ITIMER_REAL, seconds, 0.5
        )  # repeated, because a bare `except` catches the first one
        tests = {"__name__": "test_outputs", "__file__": TESTS}
        exec(compile(source, TESTS, "exec"), tests)
        for name, test in list(tests.items()):
            if name.startswith("test_") and callable(test):
                results.append([name, outcome(test)])
                if time.monotonic() > until:
                    raise Late
    except Late:
        results.append([name, f"not done after {seconds:g} s"])
        return results, True
    except BaseException as error:
        results.append([name, complaint(error)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return results, False


def outcome(test) -> str | None:  # type: ignore[no-untyped-def]
    try:
        test()
    except Late:
        raise
    except BaseException as error:
        return complaint(error)
    return None


def complaint(error: BaseException) -> str:
    line, at = 0, error.__traceback__
    while at is not None:
        if at.tb_frame.f_code.co_filename.startswith("/tests/"):
            line = at.tb_lineno
        at = at.tb_next
    return f"line {line}: {type(error).__name__}: {error}"[:500]


def ring(*about: object) -> None:
    raise Late


main()
