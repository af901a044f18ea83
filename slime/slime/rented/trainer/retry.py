"""A question to a service that may be away for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from slime.rented.service import ServiceAway, ServiceForgot, ServiceRefuses

logger = logging.getLogger(__name__)

T = TypeVar("T")
P = ParamSpec("P")
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds


def patiently(ask: Callable[[], T], before_again: Callable[[], None] = lambda: None) -> T:
    """Returns the service's answer, however long it is away; logs once when it stops and once when it is back.

    Only for questions that change nothing at the service when they are put twice.

    Raises:
        ServiceRefuses: by the content of the question. ServiceForgot: it no longer has what it is asked with.
    """
    pause, since = FIRST_PAUSE, 0.0
    while True:
        try:
            answer = ask()
        except ServiceForgot:
            raise
        except ServiceAway as error:
            if not since:
                since = time.monotonic()
                logger.warning("the service does not answer, training waits: %s", error)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            before_again()
            continue
        if since:
            logger.warning("the service answers again after %.0f s", time.monotonic() - since)
        return answer


class AdapterLost(RuntimeError):
    """The service lost the adapter, or was away in the middle of a step: it is unknown how much of it was done."""


def loses_trainer(method: Callable[P, T]) -> Callable[P, T]:
    """A failure of the service inside ends this trainer; another one goes on from the last checkpoint."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (ServiceAway, ServiceRefuses) as error:
            raise AdapterLost(f"the service: {error}") from error

    return run
