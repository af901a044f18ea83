"""A version that goes live while the driver does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from slime.weights.update import CandidateRejected


@dataclass(frozen=True)
class Publication:
    """A version on its way.

    Attributes:
        done: when every engine has it, or one refused it.
        finish: what the driver does then, if it was not given up; the arguments are why it was rejected, None: it is
            live, and the seconds that somebody waited for it.
    """

    done: Future[None]
    finish: Callable[[CandidateRejected | None, float], None] = lambda rejection, waited: None

    @property
    def went_well(self) -> bool:
        """Whether it is over, and every engine has the version."""
        return self.done.done() and not self.done.cancelled() and self.done.exception() is None

    def settle(self) -> bool:
        """Waits and finishes; whether it was rejected. Raises what the way ended with."""
        rejection, began = None, time.monotonic()
        try:
            self.done.result()
        except CandidateRejected as error:
            rejection = error
        self.finish(rejection, time.monotonic() - began)
        return rejection is not None


def in_background(action: Callable[[], None], name: str) -> Future[None]:
    """Runs an action in a thread that does not keep the process from ending."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            action()
        except BaseException as error:  # whoever waits for it gets it
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done
