"""Terminal output: a progress bar in a terminal, one line per rollout elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TextIO

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from slime.errors import unknown_name

UNBOUNDED = 10**8


class Display(Protocol):
    """Shows the progress of the run. The run continues if the reader of its output ends (a closed terminal, or a
    `tee` that Ctrl-C ended)."""

    def line(self, text: str) -> None: ...
    def at(self, rollout_id: int, doing: str) -> None: ...
    def close(self) -> None: ...


class Lines:
    """Plain lines on standard output."""

    def line(self, text: str) -> None:
        try:
            print(text, flush=True)
        except OSError:  # buffered output would fail again at the end of the process
            sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115

    def at(self, rollout_id: int, doing: str) -> None:
        """Does nothing: a line for every phase would be too much output; the log file has them."""

    def close(self) -> None:
        """Does nothing: there is nothing to close."""


class Bar:
    """A progress bar under the log lines. Log lines appear above it."""

    def __init__(self, num_rollout: int) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:g}" + ("" if num_rollout >= UNBOUNDED else "/{task.total:g}")),
            TimeElapsedColumn(),
        )
        self.task = self.progress.add_task(
            "starting", total=None if num_rollout >= UNBOUNDED else num_rollout
        )
        self.terminal = sys.stderr
        self.progress.start()
        send_logs(self.terminal, sys.stderr)  # sys.stderr is now the bar's replacement

    def line(self, text: str) -> None:
        with suppress(OSError, SystemExit):  # rich exits the process if the pipe is broken
            self.progress.console.print(text, markup=False, highlight=False)

    def at(self, rollout_id: int, doing: str) -> None:
        self.progress.update(self.task, completed=rollout_id, description=doing)

    def close(self) -> None:
        stand_in = sys.stderr
        with suppress(OSError, SystemExit):
            self.progress.stop()
        send_logs(stand_in, self.terminal)


def send_logs(old: TextIO, new: TextIO) -> None:
    """Redirects the log handlers of `old` to `new`."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, logging.StreamHandler) and handler.stream is old:
            handler.setStream(new)


def display(kind: str, num_rollout: int) -> Display:
    """Returns a display by `kind`: "bar", "lines", or "auto" (a bar if standard output is a terminal). Raises
    ConfigError for other kinds."""
    displays: dict[str, Callable[[], Display]] = {"bar": lambda: Bar(num_rollout), "lines": Lines}
    displays["auto"] = displays["bar" if sys.stdout.isatty() else "lines"]
    if kind not in displays:
        raise unknown_name("--progress", kind, displays)
    return displays[kind]()
