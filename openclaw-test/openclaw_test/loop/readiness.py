"""Waits until a loop has started; exits with one line if none of its processes is running any more."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import psutil

LOOK_SECONDS, TOLD_AFTER_SECONDS = 0.3, 60.0
SUPERVISOR = "supervisor: "
LONGEST_LINE = 300


def say(text: str) -> None:
    """Prints a line to standard error; standard output is for the result."""
    print(text, file=sys.stderr, flush=True)


async def wait_until_ready(
    url: str, timeout_s: float, log: Path | None, pid: int | None, say: Callable[[str], None] = say
) -> None:
    """Waits for the gateway's `/readyz` while the supervisor `pid` runs, or, if no pid is given, for `timeout_s`.
    Prints the supervisor's new lines in `log`, and a progress line every minute.

    Raises:
        SystemExit: no process of the loop is running any more; the message is one line.
    """
    began, report_after, news = time.monotonic(), TOLD_AFTER_SECONDS, News(log)
    async with httpx.AsyncClient(trust_env=False) as http:
        while is_running(pid) if pid is not None else time.monotonic() < began + timeout_s:
            try:
                if (await http.get(f"{url}/readyz", timeout=5.0)).status_code == 200:
                    return
            except httpx.HTTPError:
                pass
            for line in news.lines():
                say(line)
            if time.monotonic() > began + report_after:
                say(f"still starting after {time.monotonic() - began:.0f} s{more_in(log)}")
                report_after *= 2
            await asyncio.sleep(LOOK_SECONDS)
    raise SystemExit(f"error: {url} did not get ready: {reason(log)}{more_in(log)}")


def is_running(pid: int) -> bool:
    """Returns whether the process exists and is not a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class News:
    """New lines of the supervisor in a log since the last call."""

    def __init__(self, log: Path | None) -> None:
        self.log, self.read = log, 0

    def lines(self) -> list[str]:
        text = text_of(self.log)[self.read :]
        whole = text[: text.rfind("\n") + 1]
        self.read += len(whole)
        return [line[:LONGEST_LINE] for line in whole.splitlines() if line.startswith(SUPERVISOR)]


def text_of(log: Path | None) -> str:
    return log.read_text(errors="replace") if log and log.is_file() else ""


def reason(log: Path | None) -> str:
    """Returns the last line with an error, except lines of the supervisor and lines inside a traceback."""
    lines = [line for line in text_of(log).splitlines() if line.strip()]
    errors = [line for line in lines if not line.startswith((SUPERVISOR, " ", "-->", "Traceback"))]
    return (errors or lines or ["no answer came"])[-1].strip().removeprefix("error: ")[:LONGEST_LINE]


def more_in(log: Path | None) -> str:
    return f" (more in {log})" if text_of(log) else ""
