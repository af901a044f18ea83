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
from slime.agents.sandbox.memory_watch import watch
from slime.errors import ConfigError, SandboxError

_spawner = ThreadPoolExecutor(1, thread_name_prefix="sandbox-start")
"""Boxes die with the thread that started them (PR_SET_PDEATHSIG), so one that lasts starts them all."""
CHECK_SECONDS = 30.0
_lock = threading.Lock()
_checked: list[bool] = []


class Box:
    """One running box. Use it from one thread at a time.

    Attributes:
        over_memory: its processes together were over the limit, and it was ended for that.
    """

    def __init__(
        self,
        program: Sequence[str],
        limits: Limits | None = None,
        read_only: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts the program.

        Raises:
            ConfigError: there is no sandbox here.
            SandboxError: it could not be started.
        """
        self.limits = limits or Limits()
        self.over_memory = False
        self.busy_since: float | None = None
        arguments = box_arguments(self.limits, read_only or {}, environment or {})
        self.process = _spawner.submit(_spawned, program, self.limits, arguments).result()
        watch(self)

    def send(self, data: bytes) -> None:
        """Raises BrokenPipeError where nobody reads any more."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_line(self, seconds: float, longest: int) -> bytes | None:
        """The next line without its end; None where there is none in time, or a longer one, or the program has ended."""
        assert self.process.stdout is not None
        stream, line, until = self.process.stdout.fileno(), b"", time.monotonic() + seconds
        ready = select.poll()
        ready.register(stream, select.POLLIN)
        while not line.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or len(line) > longest or not ready.poll(left * 1000):
                return None
            part = os.read(stream, 65536)
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
