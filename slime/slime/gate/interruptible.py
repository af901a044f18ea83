"""Engine requests that an order about versions can interrupt."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, TimeoutError
from typing import Any, Protocol, TypeVar

from claw_base.run_folder.orders import VersionOrder
from slime.weights.update import Candidate, CandidateRejected

T = TypeVar("T")

STAGE = "order"
LOOK_SECONDS = 0.05

Ordered = Callable[[], VersionOrder | None]
"""Returns the pending order, or None."""


class Tries(Protocol):
    """An engine that can generate with weights that are not live: `slime.engines.client.EngineControl`."""

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        max_new_tokens: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> list[Mapping[str, Any]] | None: ...

    def discard(self) -> Any: ...


class OrderFirst(CandidateRejected):
    """An order requests another version: the examination is cancelled, so that the order does not wait.

    Attributes:
        release: its samples may be trained on again immediately; False if the order drops turns.
    """

    def __init__(self, order: VersionOrder) -> None:
        version = "" if order.version is None else f" {order.version}"
        super().__init__(f"not examined, because an order was pending: {order.action}{version}", STAGE)
        self.release = not order.drop_turns


def check_orders(ordered: Ordered) -> None:
    """Raises OrderFirst if an order is pending."""
    if (order := ordered()) is not None:
        raise OrderFirst(order)


def rejection_details(candidate: Candidate, rejection: CandidateRejected) -> dict[str, Any]:
    """Returns the arguments of the rejection hook."""
    return {
        "reason": str(rejection),
        "stage": rejection.stage,
        "measurements": rejection.measurements,
        "parent": candidate.parent,
        "checksum": candidate.weights.checksum,
        "release": isinstance(rejection, OrderFirst) and rejection.release,
    }


def interruptible(ask: Callable[[], T], stop: Callable[[], object], ordered: Ordered) -> T:
    """Returns or raises the result of `ask`.

    Args:
        stop: makes `ask` end soon; called when an order arrives.

    Raises:
        OrderFirst: an order arrived first.
    """
    asked = in_thread(ask, "examination")
    while True:
        try:
            return asked.result(LOOK_SECONDS)
        except TimeoutError:
            if asked.done():  # it may have finished since the wait ended
                return asked.result()
            try:
                check_orders(ordered)
            except OrderFirst:
                stop()
                raise


def in_thread(action: Callable[[], T], name: str) -> Future[T]:
    """Runs an action in a daemon thread."""
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(action())
        except BaseException as error:  # raised in the waiting thread
            done.set_exception(error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
