"""Waits for Ray with a limit, calls a check meanwhile, and logs now and then what it waits for."""

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

LOOK_INTERVAL = 1.0  # seconds between looks around
# seconds until the first line in the log; in `gather` each next one comes after twice as long
NOTE_INTERVAL = 60.0
HEARTBEAT_INTERVAL = 5.0  # seconds between questions for a sign of life


class WaitTimeout(TrainError):
    """A result did not arrive in time. `missing`: positions of the references without a result."""

    def __init__(self, message: str, missing: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.missing = list(missing)


class TaskFailed(TrainError):
    """A call ended with an error that slime did not raise: a hook's, or a library's."""


def gather(
    references: Sequence[object],
    what: str,
    limit: float = 0.0,
    look: Callable[[], None] = lambda: None,
) -> list[Any]:
    """The values of all references; the first error is raised at once, whatever the others do.

    Args:
        what: a name of the awaited result, for people.
        limit: seconds; 0 waits for ever.
        look: called every `LOOK_INTERVAL`; may raise.

    Raises:
        WaitTimeout: after `limit`.
        TaskFailed: a call failed with an error that is not slime's own; those are raised as they are.
        RayActorError: the process of a call ended.
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
            raise WaitTimeout(f"{what} did not come within {limit:g} s", open_)
        if waited > note_at:
            note_at = 2 * waited
            logger.info("waiting for %s for %.0f s", what, waited)
    return [values[i] for i in range(len(references))]


def get(reference: object, what: str) -> Any:
    """The value of a reference that is there."""
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
    """Asks an actor for a sign of life now and then; a call that hangs in it does not matter.

    Args:
        ask: starts a call that a living actor answers at once.
        limit: seconds that an answer may take; 0 never asks.
    """

    def __init__(self, ask: Callable[[], object], what: str, limit: float) -> None:
        self.ask, self.what, self.limit = ask, what, limit
        self.asked: Any = None
        self.since = 0.0
        self.answer: Any = None

    def check(self) -> None:
        """Looks whether the last question was answered. Raises WaitTimeout if not in time.

        Errors of an actor that ended are only logged: the caller that waits for its result raises them.
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
            raise WaitTimeout(f"{self.what} gave no sign of life for {self.limit:g} s")
        if self.asked is None and now - self.since > min(HEARTBEAT_INTERVAL, self.limit):
            self.asked, self.since = self.ask(), now


class RestartBudget:
    """Counts restarts of one kind in a window of time.

    Args:
        most: restarts that are allowed within `window` seconds.
    """

    def __init__(self, what: str, most: int, window: float = 600.0) -> None:
        self.what, self.most, self.window = what, most, window
        self.times: deque[float] = deque()

    def take(self, reason: BaseException) -> None:
        """Raises TrainError if there were too many."""
        now = time.monotonic()
        self.times.append(now)
        while now - self.times[0] > self.window:
            self.times.popleft()
        if len(self.times) > self.most:
            raise TrainError(
                f"{self.what} failed {len(self.times)} times in {self.window:g} s, at last: {reason}"
            ) from reason
