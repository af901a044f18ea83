"""A version of the weights on its way from its batch to the engines.

State      | entered in                                        | by
-----------|---------------------------------------------------|---------------------------------
REQUESTED  | `TrainingRun.request`: its batch is collected     | the driver's loop
TRAINING   | `TrainingRun.train`: the trainer steps on it      | the driver's loop
HELD       | `publication.publish`: no update is due, the next | the driver's loop
           | version contains it                               |
EXAMINING  | `publication.publish`: its weights have left the  | the driver's loop
           | trainer; the gate and the engines receive them    |
LIVE       | every engine serves it                            | the thread of `go_live`
REJECTED   | the gate or an engine rejected it, and the        | the driver's loop, in `publish`
           | trainer goes back to the live version             | or `settle`
FAILED     | `settle`: an engine or the trainer was lost       | the driver's loop

    REQUESTED -> TRAINING -> EXAMINING -> LIVE | REJECTED | FAILED
                    |
                    +------> HELD -> EXAMINING (only if a stop needs a checkpoint)

At most two versions exist at a time: one EXAMINING, and the next one REQUESTED or TRAINING. A version leaves the trainer
only after the one before it is settled, so EXAMINING holds at most one.

`publish(version, overlap=True)` returns while the version is EXAMINING. The next batch then trains on weights that may
still be rejected; the next `publish` settles first, and trains that batch again if they were. A rejected version is never
served, never in a checkpoint that counts, and never the parent of another one.

A stop ends a run only while the loop waits for a batch or an evaluation. It settles the version that is EXAMINING,
and then writes a checkpoint if none holds the last step. While a version is pinned or the cost limit is reached, the
next version stays REQUESTED although its batch is complete.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from enum import Enum, auto
from typing import TYPE_CHECKING

from slime.gate.interruptible import in_thread
from slime.weights.update import CandidateRejected

if TYPE_CHECKING:
    from slime.ray.rollouts import PendingBatch


class VersionState(Enum):
    """State of a version; the module's docstring has the transitions."""

    REQUESTED = auto()
    TRAINING = auto()
    HELD = auto()
    EXAMINING = auto()
    LIVE = auto()
    REJECTED = auto()
    FAILED = auto()


class VersionInFlight:
    """One rollout's batch, metrics and state, from the request to the engines.

    Attributes:
        metrics: of the rollout, its training step and its publication.
        state: see `VersionState`.
        adapter: the adapter that it belongs to, set when it is trained; None: there is one policy.
        outdated: another version was restored after the batch was requested.
        row_pending: the row of its metrics is written once the version is settled.
        going_live: the thread that publishes it, until `settle` has read its result.
    """

    def __init__(self, batch: PendingBatch) -> None:
        self.batch = batch
        self.metrics: dict[str, float] = {}
        self.state = VersionState.REQUESTED
        self.adapter: str | None = None
        self.outdated = False
        self.row_pending = False
        self.going_live: Future[None] | None = None

    @property
    def rollout_id(self) -> int:
        return self.batch.rollout_id

    @property
    def busy(self) -> bool:
        """Returns whether its thread still runs."""
        return self.going_live is not None and not self.going_live.done()

    @property
    def settled(self) -> bool:
        """Returns whether no thread runs and no result waits for `settle`."""
        return self.going_live is None

    @property
    def may_be_served(self) -> bool:
        """Returns whether its row may be written when a driver ends: it is neither on its way nor failed."""
        return self.state not in (VersionState.EXAMINING, VersionState.FAILED)

    def go_live(
        self,
        action: Callable[[], None],
        finish: Callable[[CandidateRejected | None, float], None] = lambda rejection, waited: None,
    ) -> None:
        """Starts the thread that publishes the version to every engine.

        Args:
            action: returns when every engine serves it.
            finish: called by `settle` with the rejection, or None if the version is live, and with the seconds that
                `settle` waited.
        """
        self.finish = finish

        def act() -> None:
            action()
            self.state = VersionState.LIVE

        self.going_live = in_thread(act, f"rollout {self.rollout_id} goes live")

    def settle(self) -> bool:
        """Waits until the version is live or rejected; returns whether the trainer went back to the version before it.

        Raises:
            EngineError: it did not go live; the version before it is live on every engine that answers.
            TrainerDied: the trainer was lost on the way.
        """
        going_live, self.going_live = self.going_live, None
        if going_live is None:
            return False
        rejection, began = None, time.monotonic()
        try:
            going_live.result()
        except CandidateRejected as error:
            rejection = error
        except BaseException:
            self.state = VersionState.FAILED
            raise
        self.finish(rejection, time.monotonic() - began)
        return rejection is not None
