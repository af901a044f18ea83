"""Waits for Ray's results with a limit: calls a check while waiting, and logs the awaited result periodically."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.exceptions import RayTaskError

from slime.errors import ClawError, TrainError
from slime.processes.known_failures import with_advice

logger = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0  # seconds between checks
# seconds until the first log line; in `gather` the interval doubles after each line
NOTE_INTERVAL = 60.0
HEARTBEAT_INTERVAL = 5.0  # seconds between heartbeats


class WaitTimeout(TrainError):
    """A result did not arrive in time. `missing`: positions of the references without a result."""

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing = list(missing)


class TaskFailed(TrainError):
    """A call failed with an error not defined by slime: of a hook or a library."""


def gather(
    references: Sequence[object],
    what: str,
    limit: float = 0.0,
    look: Callable[[], None] = lambda: None,
) -> list[Any]:
    """Returns the values of all references; raises the first error at once, without waiting for the others.

    Args:
        what: name of the awaited result, for messages.
        limit: seconds; 0: no limit.
        look: called every `LOOK_INTERVAL`; may raise.

    Raises:
        WaitTimeout: after `limit`.
        TaskFailed: a call failed with an error that slime does not define; slime's errors are raised unchanged.
        RayActorError: the process of a call exited.
    """
    began, note_at = time.monotonic(), NOTE_INTERVAL
    values: dict[int, Any] = {}
    while len(values) < len(references):
        open_ = [i for i in range(len(references)) if i not in values]
        pause = min(LOOK_INTERVAL, max(0.01, limit / 10)) if limit else LOOK_INTERVAL
        ready, _ = ray.wait([references[i] for i in open_], num_returns=1, timeout=pause)
        values |= {i: get(references[i], what) for i in open_ if references[i] in ready}
        if ready:
            continue
        look()
        waited = time.monotonic() - began
        if limit and waited > limit:
            raise WaitTimeout(f"{what} did not finish within {limit:g} s", open_)
        if waited > note_at:
            note_at = 2 * waited
            logger.info("waiting for %s for %.0f s", what, waited)
    return [values[i] for i in range(len(references))]


def get(reference: object, what: str) -> Any:
    """Returns the value of a reference that is complete."""
    try:
        return ray.get(reference)
    except RayTaskError as error:
        cause = error.cause
        if isinstance(cause, ClawError):
            raise cause from error
        reason = (str(cause).strip() or "no message").splitlines()[-1]
        message = f"{what} failed: {type(cause).__name__}: {reason}"
        raise TaskFailed(with_advice(message, str(cause))) from error


class Heartbeat:
    """Sends heartbeats to an actor; an actor with a hanging call still answers them.

    Args:
        ask: sends the heartbeat call, which a living actor answers at once.
        limit: seconds in which it must answer; 0: sends none.
    """

    def __init__(self, ask: Callable[[], object], what: str, limit: float) -> None:
        self.ask, self.what, self.limit = ask, what, limit
        self.asked: Any = None
        self.since = 0.0
        self.answer: Any = None

    def check(self) -> None:
        """Checks whether the last heartbeat was answered. Raises WaitTimeout if it was not answered in time.

        Errors of an actor that exited are only logged: the caller that waits for its result raises them.
        """
        if not self.limit:
            return
        now = time.monotonic()
        if self.asked is not None and ray.wait([self.asked], timeout=0)[0]:
            try:
                self.answer = ray.get(self.asked)
            except ray.exceptions.RayError as error:
                logger.info("%s does not answer now: %s", self.what, str(error).splitlines()[0])
            self.asked = None
        elif self.asked is not None and now - self.since > self.limit:
            self.asked = None
            raise WaitTimeout(f"{self.what} did not respond for {self.limit:g} s")
        if self.asked is None and now - self.since > min(HEARTBEAT_INTERVAL, self.limit):
            self.asked, self.since = self.ask(), now


class RestartBudget:
    """Limits the number of restarts in a time window.

    Args:
        most: allowed restarts within `window` seconds.
    """

    def __init__(self, what: str, most: int, window: float = 600.0) -> None:
        self.what, self.most, self.window = what, most, window
        self.times: deque[float] = deque()

    def take(self, reason: BaseException) -> None:
        """Counts a restart. Raises TrainError if there were too many."""
        now = time.monotonic()
        self.times.append(now)
        while now - self.times[0] > self.window:
            self.times.popleft()
        if len(self.times) > self.most:
            raise TrainError(
                f"{self.what} failed {len(self.times)} times in {self.window:g} s; the last failure: {reason}"
            ) from reason
