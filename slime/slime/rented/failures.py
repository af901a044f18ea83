"""What a failure of a service's SDK means: worth another try, or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import TypeVar

from slime.rented.service import ServiceAway, ServiceForgot, ServiceRefuses

Given = TypeVar("Given")
Wanted = TypeVar("Wanted")

USER = "user"
"""How such SDKs call a failure by the content of a request."""
REFUSED_KEY = (401, 403)
MAY_PASS = (401, 402, 403, 408, 409, 425, 429)
"""Statuses below 500 that a new key, a payment or a little time can change."""


def translated(error: BaseException) -> ServiceAway | ServiceRefuses:
    """The SDK's error, whose status may be that of an error behind it, in one line."""
    status, category = None, None
    told: BaseException | None = error
    while told is not None and status is None and category is None:
        status, category = status_of(told), getattr(told, "category", None)
        told = told.__cause__
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:400]
    if "not loaded" in line:
        return ServiceForgot(line)
    by_content = status is not None and 400 <= status < 500 and status not in MAY_PASS
    by_user = by_content or str(getattr(category, "value", category)).lower() == USER
    if by_user and "session" not in line.lower():
        return ServiceRefuses(line)
    return ServiceAway(line)


def status_of(error: BaseException) -> int | None:
    """The HTTP status that an error tells of: its own, or that of the answer behind it."""
    status = getattr(error, "status_code", None) or getattr(
        getattr(error, "response", None), "status_code", None
    )
    return status if isinstance(status, int) else None


def status_behind(error: BaseException | None) -> int | None:
    """The same of an error or of those behind it."""
    while error is not None:
        if (status := status_of(error)) is not None:
            return status
        error = error.__cause__
    return None


@contextmanager
def failures_translated() -> Iterator[None]:
    """Raises ServiceAway or ServiceRefuses for whatever the SDK raises inside."""
    try:
        yield
    except (ServiceAway, ServiceRefuses):
        raise
    except Exception as error:  # the SDK raises ValueError, TimeoutError and others of many libraries
        raise translated(error) from error


def then(given: Future[Given], make: Callable[[Given], Wanted]) -> Future[Wanted]:
    """What `make` makes of a future's result; failures are translated."""
    wanted: Future[Wanted] = Future()

    def done(ended: Future[Given]) -> None:
        if not wanted.set_running_or_notify_cancel():
            return
        try:
            wanted.set_result(make(ended.result()))
        except BaseException as error:
            wanted.set_exception(translated(error))

    given.add_done_callback(done)
    return wanted
