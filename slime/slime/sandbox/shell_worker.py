"""Runs inside the sandbox: named bash shells, each with its own terminal. The source is passed to `python -c`.

Input: lines of JSON, {"number", "action": "execute" | "view" | "write" | "kill", "name", "text", "seconds", "block"}.
Output: {"number", "output", "running", "code", "error"}. A shell's `code` is that of its last command; None while
one runs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import select
import signal
import struct
import sys
import termios
import time

MAX_CHARACTERS = int(sys.argv[1])
MOST_SHELLS = int(sys.argv[2])
PROGRAM = sys.argv[3]
PLAIN = not PROGRAM.endswith("bash")  # a shell that supports only POSIX
os.environ.update(json.loads(sys.argv[4]))
IDLE = 0.3  # seconds without output after which a typed line counts as answered
TICK = 0.05
LOOP = r"""trap : INT
while IFS= read -r -d '' _mark <&3 && IFS= read -r -d '' _command <&3; do
eval "$_command" 3<&- 4>&-
printf '\036%s:%d\036' "$_mark" "$?" >&4
done"""
PLAIN_LOOP = r"""trap : INT
while IFS= read -r _mark <&3 && IFS= read -r _command <&3; do
command eval "$(printf '%b' "$_command")" 3<&- 4>&-
printf '\036%s:%d\036' "$_mark" "$?" >&4
done"""
WORDS = ["sh", "-c", PLAIN_LOOP] if PLAIN else ["bash", "--norc", "--noprofile", "-c", LOOP]
"""The program of a shell: commands come by descriptor 3, so that descriptor 0 is the terminal; the end of each is marked
on the terminal too, after all that the command printed."""


class NewOutput:
    """New output; only its beginning and end if it is long."""

    def __init__(self) -> None:
        self.start, self.end, self.size = b"", b"", 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        room = 2 * MAX_CHARACTERS - len(self.start)
        self.start += data[:room]
        self.end = (self.end + data[room:])[-2 * MAX_CHARACTERS :] if len(data) > room else self.end

    def take(self) -> str:
        start, end = self.start.decode(errors="replace"), self.end.decode(errors="replace")
        text, size = start + end, self.size
        self.__init__()  # type: ignore[misc]
        if len(text) <= MAX_CHARACTERS:
            return text
        half = MAX_CHARACTERS // 2
        return f"{text[:half]}\n... [{size} bytes in all] ...\n{text[-half:]}"


class Shell:
    """One bash."""

    def __init__(self) -> None:
        self.terminal, inside = os.openpty()
        plain = termios.tcgetattr(inside)
        plain[1] &= ~termios.OPOST
        plain[3] &= ~(termios.ECHO | termios.ECHONL)
        termios.tcsetattr(inside, termios.TCSANOW, plain)
        fcntl.ioctl(inside, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        read, self.orders = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become_bash(inside, read)
        os.close(inside)
        os.close(read)
        os.set_blocking(self.terminal, False)
        self.new, self.held, self.mark = NewOutput(), b"", ""
        self.running, self.ended, self.last_output = False, False, 0.0
        self.code: int | None = None

    def execute(self, command: str) -> None:
        self.mark, self.running, self.code = secrets.token_hex(8), True, None
        with contextlib.suppress(BrokenPipeError):
            os.write(self.orders, _order(self.mark, command))

    def read(self) -> None:
        """Reads the available output of the terminal."""
        try:
            data = os.read(self.terminal, 65536)
        except BlockingIOError:
            return
        except OSError:  # no process has the terminal open any more
            self.see_end(wait=True)
            return
        self.last_output = time.monotonic()
        text = self.held + data
        match = re.search(rb"\x1e%s:(\d+)\x1e" % self.mark.encode(), text) if self.running else None
        if match is not None:
            self.running, self.code = False, int(match[1])
            text = text[: match.start()] + text[match.end() :]
        cut = text.rfind(b"\x1e", -40) if self.running else -1
        self.held = text[cut:] if cut >= 0 else b""
        self.new.add(text[:cut] if cut >= 0 else text)

    def see_end(self, wait: bool = False) -> None:
        """Records that bash has ended."""
        if self.ended:
            return
        with contextlib.suppress(ChildProcessError):
            pid, status = os.waitpid(self.pid, 0 if wait else os.WNOHANG)
            if pid:
                code = os.waitstatus_to_exitcode(status)
                self.code = code if code >= 0 else 128 - code
                self.ended, self.running = True, False

    def write(self, text: str, until: float) -> bool:
        """Types the text. Returns whether the terminal accepted all of it."""
        data = text.encode()
        while data and time.monotonic() < until:
            try:
                data = data[os.write(self.terminal, data) :]
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    return False
                self.read()
                time.sleep(0.01)
        return not data

    def close(self) -> None:
        """Kills all processes of its session."""
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) not in (1, os.getpid()):
                with contextlib.suppress(OSError, ValueError):
                    if os.getsid(int(name)) == self.pid:
                        os.kill(int(name), signal.SIGKILL)
        self.see_end(wait=True)
        self.release()

    def release(self) -> None:
        """Drops ended processes; background processes continue."""
        os.close(self.terminal)
        os.close(self.orders)


def _order(mark: str, command: str) -> bytes:
    """Returns a command in the format of the shell's loop. A plain shell reads lines, so each byte is escaped."""
    escaped = b"".join(b"\\0%03o" % one for one in command.encode())
    return b"%s\n%s\n" % (mark.encode(), escaped) if PLAIN else f"{mark}\0{command}\0".encode()


def _become_bash(terminal: int, orders: int) -> None:
    try:
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 10) for descriptor in (terminal, orders)]
        for target, source in ((0, high[0]), (1, high[0]), (2, high[0]), (3, high[1]), (4, high[0])):
            os.dup2(source, target)
        os.closerange(5, 1024)
        for usual in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(usual, signal.SIG_DFL)  # a run in the background of a script ignores the first two
        os.execv(PROGRAM, WORDS)
    finally:
        os._exit(127)


SHELLS: dict[str, Shell] = {}


def pump(seconds: float, orders: int | None = None) -> bool:
    """Reads output for `seconds`. Returns whether an order has arrived."""
    waiting = select.poll()
    by_descriptor = {shell.terminal: shell for shell in SHELLS.values() if not shell.ended}
    for descriptor in by_descriptor:
        waiting.register(descriptor, select.POLLIN)
    if orders is not None:
        waiting.register(orders, select.POLLIN)
    ready = [descriptor for descriptor, _ in waiting.poll(seconds * 1000)]
    for descriptor in ready:
        if descriptor != orders:
            by_descriptor[descriptor].read()
    if not ready:
        for shell in by_descriptor.values():
            shell.see_end()
    return orders in ready


def answer(order: dict[str, object]) -> dict[str, object]:
    name, text, action = str(order["name"]), str(order["text"]), order["action"]
    until = time.monotonic() + float(str(order["seconds"]))
    shell = SHELLS.get(name)
    if action == "execute":
        if shell is not None and shell.running:
            return {"error": f"a command still runs in the shell {name!r}: view it, write to it or kill it"}
        if shell is None:
            if len(SHELLS) >= MOST_SHELLS:
                return {"error": f"there are {MOST_SHELLS} shells, and no more are allowed: kill one"}
            shell = SHELLS[name] = Shell()
        shell.execute(text)
        while order["block"] and shell.running and time.monotonic() < until:
            pump(TICK)
    elif shell is None:
        return {"error": f"there is no shell {name!r}; shells: {', '.join(sorted(SHELLS)) or 'none'}"}
    elif action == "write":
        shell.last_output = time.monotonic()
        if shell.ended or not shell.write(text, until):
            return {"error": f"nothing in the shell {name!r} reads what is written"}
        while time.monotonic() < until and time.monotonic() - shell.last_output < IDLE and not shell.ended:
            pump(TICK)
    elif action == "kill":
        shell.close()
        del SHELLS[name]
    else:
        pump(0)
    about = {"output": shell.new.take(), "running": shell.running, "code": shell.code, "ended": shell.ended}
    if shell.ended and SHELLS.pop(name, None) is not None:
        shell.release()
    return about


def main() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    results, orders = os.fdopen(os.dup(1), "w"), os.fdopen(os.dup(0), "rb", buffering=0)
    nothing = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(nothing, descriptor)
    results.write('{"number": 0}\n')
    results.flush()
    text = b""
    while True:
        while b"\n" not in text:
            if pump(1.0, orders.fileno()):
                data = orders.read(1 << 16)
                if not data:
                    return
                text += data
        line, _, text = text.partition(b"\n")
        order = json.loads(line)
        results.write(json.dumps({"number": order["number"], **answer(order)}) + "\n")
        results.flush()


main()
