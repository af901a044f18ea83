"""Persistent shells: named bash sessions in one sandbox with a workspace; and single commands in a separate
sandbox."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slime.errors import ConfigError, SandboxError
from slime.sandbox.box import LOST, Box, require_sandbox
from slime.sandbox.command import worker_python
from slime.sandbox.images.image import Image
from slime.sandbox.limits import Limits
from slime.sandbox.workspace import Workspace

WORKER = Path(__file__).with_name("shell_worker.py")
START_SECONDS = 60.0
GRACE = 20.0  # seconds after a call's own limit in which the worker inside must respond
MOST_SHELLS = 16
VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Shown:
    """The output of a shell.

    Attributes:
        output: output since the shell was last shown; the middle of long output is omitted.
        running: a command runs.
        exit_code: exit code of the last finished command, or of the shell; None while a command runs.
        ended: the shell has ended; its name starts a new one.
        error: one line for the model if the call failed; otherwise None.
        restarted: the sandbox ended with all shells; files in the workspace are kept.
    """

    output: str = ""
    running: bool = False
    exit_code: int | None = None
    ended: bool = False
    error: str | None = None
    restarted: bool = False

    def text(self) -> str:
        """Returns the text for a model."""
        parts = [self.output.rstrip("\n")]
        if self.error:
            parts.append(f"Error: {self.error}")
        elif self.running:
            parts.append("[still running]")
        elif self.ended:
            parts.append(f"[the shell has ended with exit code {self.exit_code}]")
        elif self.exit_code:
            parts.append(f"[exit code {self.exit_code}]")
        return "\n".join(part for part in parts if part)


class Shells:
    """Named bash shells in one sandbox, which starts at the first command. A shell keeps its folder, variables and
    functions, and its terminal is not echoed. Calls of several threads wait for each other; `close` ends one that
    waits.

    Every method raises SandboxError if the sandbox did not start or was killed from outside.
    """

    def __init__(
        self,
        workspace: Workspace | None = None,
        limits: Limits | None = None,
        read_only: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
        image: Image | None = None,
    ) -> None:
        """Raises ConfigError if there is no sandbox, or no shell in the image."""
        require_sandbox()
        self.workspace, self.limits, self.image = workspace, limits or Limits(), image
        self.bash = bash_of(image)
        self.read_only, self.environment = read_only, {**VARIABLES, **(environment or {})}
        self.box: Box | None = None
        self.number = 0
        self._one = threading.Lock()

    def execute(self, name: str, command: str, seconds: float = 20.0, block: bool = True) -> Shown:
        """Runs a command in the shell `name`, which is started if it does not exist.

        Args:
            seconds: time after which it continues in the background.
            block: whether to wait; False: it runs in the background at once.
        """
        if "\0" in command:
            return Shown(error="a command cannot hold a zero byte")
        return self._ask("execute", name, command, seconds, block)

    def view(self, name: str) -> Shown:
        """Returns the new output."""
        return self._ask("view", name)

    def write(self, name: str, text: str, seconds: float = 5.0) -> Shown:
        """Types text, and a line end unless it has one or is a control character. Waits for a pause in the output, for at
        most `seconds`."""
        typed = text if text.endswith("\n") or (len(text) == 1 and text < " ") else f"{text}\n"
        return self._ask("write", name, typed, seconds)

    def kill(self, name: str) -> Shown:
        """Ends a shell and its programs."""
        return self._ask("kill", name)

    def close(self) -> None:
        """Ends the sandbox with all shells; the workspace stays. Can be repeated, also from another thread."""
        box, self.box = self.box, None
        if box is not None:
            box.close()

    def __enter__(self) -> Shells:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()

    def _start(self) -> Box:
        if self.box is not None:
            return self.box
        image = self.image.environment if self.image is not None else {}
        # only the image's own programs may use these
        linking = {name: value for name, value in image.items() if name.startswith("LD_")}
        rest = [str(self.limits.output_chars), str(MOST_SHELLS), self.bash, json.dumps(linking)]
        program = [*worker_python(self.image), "-I", "-S", "-c", WORKER.read_text(), *rest]
        environment = {**dict.fromkeys(linking, ""), **self.environment}
        box = Box(program, self.limits, self.read_only, environment, self.workspace, image=self.image)
        if box.read_line(START_SECONDS, 100) != b'{"number": 0}':
            code = box.exit_code()
            box.close()
            raise SandboxError(f"the shells did not start in their sandbox (exit code {code})")
        box.busy_since = time.monotonic()
        self.box = box
        return box

    def _ask(
        self, action: str, name: str, text: str = "", seconds: float = 0.0, block: bool = False
    ) -> Shown:
        with self._one:
            box = self._start()
            self.number += 1
            order = {"number": self.number, "action": action, "name": name, "text": text, "seconds": seconds}
            try:
                box.send(json.dumps({**order, "block": block}).encode() + b"\n")
                line = box.read_line(seconds + GRACE, 16 * self.limits.output_chars + 4096)
            except (BrokenPipeError, ValueError):  # ValueError: closed meanwhile
                line = None
            shown = self._shown(line)
            if shown is not None:
                return shown
            reason, lost = self._reason(box), box.lost()
            self.close()
            if lost:
                raise SandboxError(LOST)
            where = f"; files in {self.workspace.place} are kept" if self.workspace is not None else ""
            return Shown(error=f"{reason}; all shells were ended{where}", restarted=True)

    def _shown(self, line: bytes | None) -> Shown | None:
        """Returns the answer in a line; None if it is not the worker's answer to this order, because code in the sandbox
        may have written it."""
        try:
            reply: dict[str, Any] = json.loads(line or b"")
            if reply["number"] != self.number:
                return None
            if "error" in reply:
                return Shown(error=str(reply["error"]))
            code = None if reply["code"] is None else int(reply["code"])
            output = str(reply["output"]).encode("utf-8", "replace").decode()
            return Shown(output, bool(reply["running"]), code, bool(reply["ended"]))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            return None

    def _reason(self, box: Box) -> str:
        code = box.exit_code(1.0)
        if reason := box.over:
            return reason
        return "the sandbox does not answer" if code is None else f"the sandbox has ended (exit code {code})"


@dataclass(frozen=True)
class Finished:
    """The result of a command.

    Attributes:
        exit_code: 128 + signal if a signal ended it; None if it exceeded a limit, which `error` names.
        output: printed text of both streams; the middle of long output is omitted.
    """

    exit_code: int | None
    output: str
    error: str | None = None


def run(
    command: str,
    seconds: float,
    workspace: Workspace | None = None,
    limits: Limits | None = None,
    read_only: Mapping[Path, str] | None = None,
    environment: Mapping[str, str] | None = None,
    image: Image | None = None,
) -> Finished:
    """Runs one bash command in a separate sandbox, and ends everything in it with the command.

    Raises:
        ConfigError: sandboxes do not work, or the image has no shell.
        SandboxError: the sandbox did not start, or was killed from outside.
    """
    require_sandbox()
    limits = limits or Limits()
    bash = bash_of(image)
    options = ["--norc"] if bash.endswith("bash") else []
    program = [bash, *options, "-c", 'exec </dev/null 2>&1; eval "$1"', "bash", command]
    until = time.monotonic() + seconds
    start, end, size = b"", b"", 0
    variables = {**VARIABLES, **(environment or {})}
    with Box(program, limits, read_only, variables, workspace, image=image) as box:
        box.busy_since = time.monotonic()
        while part := box.read_some(max(until - time.monotonic(), 0)):
            size += len(part)
            room = 2 * limits.output_chars - len(start)
            start, end = start + part[:room], (end + part[room:])[-2 * limits.output_chars :]
        code = box.exit_code(max(until - time.monotonic(), 0.0 if part is None else 1.0))
        if box.lost():
            raise SandboxError(LOST)
        reason = box.over or (f"it ran longer than {seconds:g} s" if code is None else None)
    return Finished(None if reason else code, _clipped(start + end, size, limits.output_chars), reason)


def bash_of(image: Image | None) -> str:
    """Returns the shell of a sandbox: an image's own, bash if it has one. Raises ConfigError."""
    shell = "/bin/bash" if image is None else image.has("/bin/bash", "/usr/bin/bash", "/bin/sh")
    if shell is None:
        raise ConfigError(
            f"there is no shell in the image {image.name if image else ''}, so no command can run in it"
        )
    return shell


def _clipped(data: bytes, size: int, most: int) -> str:
    text = data.decode(errors="replace")
    return (
        text
        if len(text) <= most
        else f"{text[: most // 2]}\n... [{size} bytes in all] ...\n{text[-(most // 2) :]}"
    )
