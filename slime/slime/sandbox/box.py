"""A program in a sandbox, with pipes to it. Closing the sandbox ends everything in it.

A thread ends sandboxes whose processes exceed their memory or file limit.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import subprocess
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from slime.errors import ConfigError, SandboxError
from slime.sandbox.cgroup import Group, make_group
from slime.sandbox.command import HOME, box_arguments, launcher, programs
from slime.sandbox.folders import TooLarge
from slime.sandbox.images.image import Image
from slime.sandbox.limits import Limits
from slime.sandbox.seccomp import seccomp_filter
from slime.sandbox.usage import FILE_BYTES, Usage
from slime.sandbox.workspace import Workspace

_spawner = ThreadPoolExecutor(1, thread_name_prefix="sandbox-start")
"""A sandbox dies with the thread that started it (PR_SET_PDEATHSIG), so one permanent thread starts them all."""
CHECK_SECONDS = 30.0
END_SECONDS = 30.0
LOST = "the sandbox was killed by another process of this machine"
_lock = threading.Lock()
_checked: list[bool] = []


class Box:
    """One running sandbox. Use it from one thread at a time.

    Attributes:
        busy_since: monotonic time at which a call started, or None; a busy sandbox is checked more often.
        usage: resource use of its processes; None if it did not start.
    """

    def __init__(
        self,
        program: Sequence[str],
        limits: Limits | None = None,
        read_only: Mapping[Path, str] | None = None,
        environment: Mapping[str, str] | None = None,
        workspace: Workspace | None = None,
        scratch: Sequence[str] = (),
        image: Image | None = None,
        errors: int = subprocess.DEVNULL,
    ) -> None:
        """Starts the program.

        Args:
            read_only: folders and files of this machine, with their paths in the sandbox.
            environment: variables beyond PATH, HOME and LANG.
            workspace: writable folder in which the program starts.
            scratch: empty writable folders that are removed with the sandbox; each has `limits.disk_bytes`.
            image: its files are the sandbox's system, instead of this machine's.
            errors: descriptor of the program's standard error.

        Raises:
            ConfigError: sandboxes do not work here.
            SandboxError: it could not be started.
        """
        self.limits = limits or Limits()
        self.workspace = workspace
        self._over: str | None = None
        self.busy_since: float | None = None
        self._killed = False
        self._ahead = b""  # output that was read beyond the current line
        folders = workspace.folders if workspace else ()
        arguments = box_arguments(self.limits, read_only or {}, environment or {}, folders, scratch, image)
        self.group = make_group(self.limits)
        command = functools.partial(launcher, program=program, limits=self.limits, image=image)
        self.process, info_pipe = _spawner.submit(_spawn, command, arguments, self.group, errors).result()
        self._first, number = _open_first_process(info_pipe)
        self.usage = Usage(number, (HOME, *scratch)) if number else None
        watch(self)

    def send(self, data: bytes) -> None:
        """Writes to the process. Raises BrokenPipeError if it no longer reads."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def read_some(self, seconds: float) -> bytes | None:
        """Returns the next output; b"" at the end of the program, also if another thread closed the sandbox, None
        after the time-out."""
        assert self.process.stdout is not None
        ready = select.poll()
        try:
            ready.register(self.process.stdout.fileno(), select.POLLIN)
            return os.read(self.process.stdout.fileno(), 65536) if ready.poll(seconds * 1000) else None
        except ValueError:  # fileno() of a closed pipe
            return b""

    def read_line(self, seconds: float, longest: int) -> bytes | None:
        """Returns the next line without its end; None after the time-out, for a longer line, or if the program has
        exited. Later data is kept for the next call."""
        line = self.read_until(lambda data: b"\n" in data, seconds, longest)
        if line is None:
            return None
        line, _, self._ahead = line.partition(b"\n")
        return line

    def read_until(self, complete: Callable[[bytes], bool], seconds: float, longest: int) -> bytes | None:
        """Returns the output until it is complete; None after the time-out, if it is longer, or if the program has
        exited."""
        data, until = self._ahead, time.monotonic() + seconds
        self._ahead = b""
        while not complete(data):
            left = until - time.monotonic()
            part = self.read_some(left) if left > 0 and len(data) <= longest else None
            if not part:
                return None
            data += part
        return data

    @property
    def over(self) -> str | None:
        """Returns the limit that the processes exceeded, as text for a model; None if there is none. The sandbox is
        ended then."""
        if self._over is None and self.group is not None and self.group.over():
            self._over = f"its processes together used more than {self.limits.memory >> 20} MiB of memory"
        return self._over

    def end_over(self, limit: str) -> None:
        """Kills the sandbox, because it exceeded a limit."""
        self._over = limit
        self.kill()

    def exit_code(self, seconds: float = 0.0) -> int | None:
        """Returns the program's exit code, 128 + signal if a signal ended it; None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        return self.process.returncode

    def kill(self) -> None:
        """Kills everything in the sandbox, without waiting. Can be repeated, also from another thread."""
        self._killed = self._killed or self.process.poll() is None
        self.process.kill()
        # while bubblewrap sets up the sandbox, killing it does not kill the processes inside
        if self._first is not None:
            with contextlib.suppress(OSError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    def lost(self) -> bool:
        """Returns whether another process on this machine killed the sandbox, not the code in it."""
        if self._killed or self.process.poll() is None or self.over is not None:
            return False
        return self.process.returncode < 0

    def close(self) -> None:
        """Kills everything in the sandbox and waits for its end. Can be repeated."""
        self.kill()
        with contextlib.suppress(BrokenPipeError), self.process:
            pass
        first, self._first = self._first, None
        if first is not None:
            select.select([first], [], [], END_SECONDS)
            os.close(first)
        self._over = self.over  # the cgroup's last report
        if self.group is not None:
            self.group.remove()
        if self.workspace is not None:
            self.workspace.settle()

    def __enter__(self) -> Box:
        return self

    def __exit__(self, *about: object) -> None:
        self.close()


def _spawn(
    launch: Callable[[tuple[int, int, int]], list[str]], arguments: bytes, group: Group | None, errors: int
) -> tuple[subprocess.Popen[bytes], int]:
    info_pipe, write_end = os.pipe()
    try:
        with _inherited(arguments, counted=group is not None) as descriptors:
            command = launch((*descriptors, write_end))
            process = subprocess.Popen(
                group.joined(command) if group is not None else command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={},
                pass_fds=(*descriptors, write_end),
                start_new_session=True,
            )
        return process, info_pipe
    except OSError as error:
        os.close(info_pipe)
        raise SandboxError(f"a sandbox could not be started: {error}") from error
    finally:
        os.close(write_end)


def _open_first_process(info_pipe: int) -> tuple[int | None, int]:
    """Returns a descriptor and the id of the first process in a sandbox, which ends after all others there; None and
    0 if the sandbox did not start."""
    with open(info_pipe, "rb") as file, contextlib.suppress(ValueError, KeyError, OSError):
        number = int(json.loads(file.read())["child-pid"])
        return os.pidfd_open(number), number
    return None, 0


@contextlib.contextmanager
def _inherited(arguments: bytes, counted: bool) -> Iterator[tuple[int, int]]:
    """Yields the descriptors from which bubblewrap reads its arguments and the filter of system calls."""
    with (
        open(os.memfd_create("box"), "w+b") as arguments_file,
        open(os.memfd_create("filter"), "w+b") as filter_file,
    ):
        for file, data in ((arguments_file, arguments), (filter_file, seccomp_filter(counted=counted))):
            file.write(data)
            file.seek(0)
        yield arguments_file.fileno(), filter_file.fileno()


def require_sandbox() -> None:
    """Tests once whether sandboxes work here.

    Raises:
        ConfigError: they do not; the message has bubblewrap's reason.
    """
    with _lock:
        if not _checked:
            _try_one()
            _checked.append(True)


def _try_one() -> None:
    programs()
    try:
        with _inherited(box_arguments(Limits(), {}, {}), counted=False) as descriptors:
            command = launcher((*descriptors, 2), ["/usr/bin/true"], Limits())
            test = subprocess.run(
                command, capture_output=True, env={}, pass_fds=descriptors, timeout=CHECK_SECONDS, check=False
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"a sandbox cannot be created here: {error}") from error
    if test.returncode:
        reason = (test.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"])[-1]
        raise ConfigError(
            f"a sandbox cannot be created here, and code of a model is not run without one: {reason}"
        )


INTERVAL = 0.05  # seconds; a core fills some 100 MiB of memory in this time
DISK_EVERY = 5  # intervals; a disk fills more slowly, and checking it costs more
DISK_SHARE = (
    10  # multiple of a check's duration until the next one, so that large repositories are checked less often
)
_watched: weakref.WeakSet[Box] = weakref.WeakSet()
_watch_lock = threading.Lock()
_watchers: list[threading.Thread] = []
_next_check: weakref.WeakKeyDictionary[Box, float] = weakref.WeakKeyDictionary()


def watch(box: Box) -> None:
    """Lets a thread monitor the sandbox and end it if it exceeds its limits: often while it is busy, otherwise
    because of processes that its code left running.

    Without a cgroup, the kernel limits only single processes. Creating cgroups and disk quotas needs privileges that
    users and containers often lack. With a cgroup, the kernel limits the memory and may kill only one of several
    processes; then the thread ends the others.
    """
    with _watch_lock:
        _watched.add(box)
        if not _watchers or not _watchers[0].is_alive():
            _watchers[:] = [threading.Thread(target=_watch_all, name="sandbox-watcher", daemon=True)]
            _watchers[0].start()


def _watch_all() -> None:
    round_ = 0
    while True:
        time.sleep(INTERVAL)
        round_ += 1
        is_full_check, busy_limit = round_ % DISK_EVERY == 0, time.monotonic() - INTERVAL / 2
        with _watch_lock:
            boxes = list(_watched)
        for box in boxes:
            if is_full_check or (box.busy_since is not None and box.busy_since < busy_limit):
                reason = _over(box, check_disk=is_full_check)
                if reason is not None:
                    box.end_over(reason)


def _over(box: Box, check_disk: bool) -> str | None:
    """Returns the exceeded limit, as a sentence for the model; None if there is none."""
    if box.process.poll() is not None:
        return None
    usage = box.usage
    if box.group is None and usage is not None and usage.memory(check_disk) > box.limits.memory:
        return f"its processes together used more than {box.limits.memory >> 20} MiB of memory"
    if reason := box.over:
        return reason
    return _over_disk(box, usage) if check_disk and usage is not None else None


def _over_disk(box: Box, usage: Usage) -> str | None:
    if (place := usage.too_many_files(box.limits.disk_bytes)) is not None:
        return f"its files in {place} are too many: there are more than {box.limits.disk_bytes // FILE_BYTES}"
    began = time.monotonic()
    if box.workspace is None or began < _next_check.get(box, 0.0):
        return None
    try:
        box.workspace.check_size(usage.removed(os.fstat(box.workspace.root).st_dev))
    except TooLarge as error:
        return f"its files in {box.workspace.place} are too many: {error}"
    except OSError:  # the workspace is being closed
        return None
    _next_check[box] = time.monotonic() + DISK_SHARE * (time.monotonic() - began)
    return None
