"""A program in a box, with pipes to it; ending it ends everything in it."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slime.agents.sandbox.command import box_arguments, launcher, programs
from slime.agents.sandbox.limits import Limits
from slime.agents.sandbox.watcher import watch
from slime.agents.sandbox.workspace import Workspace
from slime.errors import ConfigError, SandboxError

_spawner = ThreadPoolExecutor(1, thread_name_prefix="sandbox-start")
"""Boxes die with the thread that started them (PR_SET_PDEATHSIG), so one that lasts starts them all."""
CHECK_SECONDS = 30.0
_lock = threading.Lock()
_checked: list[bool] = []


class Box:
    """One running box. Use it from one thread at a time.

    Attributes:
        over: which limit its processes together went over, if it was ended for that.
        busy_since: on the monotonic clock, since when code in it may run; it is watched then.
    """

    def __init__(
        self,
        program: Sequence[str],
        limits: Limits | None = None,
        read_only: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
        workspace: Workspace | None = None,
    ) -> None:
        """Starts the program.

        Args:
            read_only: folders and files of this machine, and where they are in the box.
            environment: variables beyond PATH, HOME and LANG.
            workspace: is where the program starts, and can be written.

        Raises:
            ConfigError: there is no sandbox here.
            SandboxError: it could not be started.
        """
        self.limits = limits or Limits()
        self.workspace = workspace
        self.over: str | None = None
        self.busy_since: float | None = None
        folder = (workspace.path, workspace.place) if workspace else None
        arguments = box_arguments(self.limits, read_only or {}, environment or {}, folder)
        self.process = _spawner.submit(_spawned, program, self.limits, arguments).result()
        watch(self)

    def send(self, data: bytes) -> None:
        """Raises BrokenPipeError where nobody reads any more."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_some(self, seconds: float) -> bytes | None:
        """What comes next; empty at the end of the program, None where nothing comes in time."""
        assert self.process.stdout is not None
        ready = select.poll()
        ready.register(self.process.stdout.fileno(), select.POLLIN)
        return os.read(self.process.stdout.fileno(), 65536) if ready.poll(seconds * 1000) else None

    def read_line(self, seconds: float, longest: int) -> bytes | None:
        """The next line without its end; None where there is none in time, or a longer one, or the program has ended."""
        line, until = b"", time.monotonic() + seconds
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            part = self.read_some(left) if left > 0 and len(line) <= longest else None
            if not part:
                return None
            line += part
        return line[:-1]

    def exit_code(self, seconds: float = 0.0) -> int | None:
        """Of the program, 128 + signal where a signal ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode

    def close(self) -> None:
        """Kills everything in the box and waits for its end. May be repeated."""
        self.process.kill()
        with contextlib.suppress(BrokenPipeError), self.process:
            pass
        if self.workspace is not None:
            self.workspace.settle()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _spawned(program: Sequence[str], limits: Limits, arguments: bytes) -> subprocess.Popen[bytes]:
    memory = os.memfd_create("box", os.MFD_CLOEXEC)
    try:
        os.write(memory, arguments)
        os.lseek(memory, 0, os.SEEK_SET)
        return subprocess.Popen(
            launcher(memory, program, limits),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            pass_fds=(memory,),
            start_new_session=True,
        )
    except OSError as error:
        raise SandboxError(f"a sandbox could not be started: {error}") from error
    finally:
        os.close(memory)


def require_sandbox() -> None:
    """Tries once whether boxes work here.

    Raises:
        ConfigError: they do not, with bubblewrap's reason.
    """
    with _lock:
        if not _checked:
            _try_one()
            _checked.append(True)


def _try_one() -> None:
    programs()
    memory = os.memfd_create("box", os.MFD_CLOEXEC)
    try:
        os.write(memory, box_arguments(Limits(), {}, {}))
        os.lseek(memory, 0, os.SEEK_SET)
        command = launcher(memory, ["/usr/bin/true"], Limits())
        tried = subprocess.run(
            command, capture_output=True, env={}, pass_fds=(memory,), timeout=CHECK_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"a sandbox cannot be made here: {error}") from error
    finally:
        os.close(memory)
    if tried.returncode:
        reason = (tried.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"a sandbox cannot be made here, and code of a model is not run without one: {reason}"
        )
