"""Retries requests to a service that may be unavailable for a while."""

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
FIRST_PAUSE, MAX_PAUSE = 1.0, 30.0  # seconds


def with_retries(ask: Callable[[], T], before_again: Callable[[], None] = lambda: None) -> T:
    """Returns the result of `ask`; retries until the service answers, and logs the start and the end of an outage
    once.

    Only for requests that can be repeated without effect on the service.

    Raises:
        ServiceRefuses: the request's content is rejected.
        ServiceForgot: the service has lost the object of the request.
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
            pause = min(2 * pause, MAX_PAUSE)
            before_again()
            continue
        if since:
            logger.warning("the service answers again after %.0f s", time.monotonic() - since)
        return answer


class AdapterLost(RuntimeError):
    """The service lost the adapter, or became unavailable during a step, so that the adapter's state is unknown."""


def loses_trainer(method: Callable[P, T]) -> Callable[P, T]:
    """Decorator: a failure of the service raises AdapterLost; a new trainer resumes from the last checkpoint."""

    @wraps(method)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(*args, **kwargs)
        except (ServiceAway, ServiceRefuses) as error:
            raise AdapterLost(f"the service failed: {error}") from error

    return run
