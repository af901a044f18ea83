"""A training run: its actors, its servers, and the recovery of what dies or hangs.

Servers come back by themselves (see `ServerWatcher`), a rollout manager is replaced where its batch is awaited
(`Rollouts`). Here is the rest: a trainer that is lost starts again from the latest checkpoint, whose weights go
live once more; the rollout side then takes back what was leased or trained since. When Ray itself dies the
driver ends, and the supervisor starts another.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder.usage import cost_of, read_prices
from slime.errors import DataError, TrainError
from slime.ray.evaluation import evaluate
from slime.ray.parts import RunParts
from slime.ray.rollouts import PendingBatch
from slime.ray.stop import Stopped
from slime.ray.train_group import TrainerDied, TrainGroup
from slime.ray.version_orders import left_over, obey, repin
from slime.ray.waiting import RestartBudget
from slime.tracking.lines import beginning
from slime.tracking.step_times import StepClock
from slime.weights import checkpoints

if TYPE_CHECKING:
    from slime.arguments import Arguments

logger = logging.getLogger(__name__)

PIN_INTERVAL = 0.5  # seconds between looks for an order while training waits
FAILURES_IN_A_ROW = 3  # batches that could not be trained on, before the run is given up


class TrainingRun(RunParts):
    """Everything a training loop uses, in verbs. `args` are the parsed arguments of the driver."""

    untold: tuple[int, dict[str, float]] | None = (
        None  # a rollout whose version is on its way, and its metrics
    )

    told_of_cost = False
    went_back = False  # since the present batch was asked for
    batch: PendingBatch | None = None  # the newest one that was trained on
    stopping = False  # somebody asked for the end; the next look around is the place for it
    restored = -1  # the last rollout in the weights that this driver began with

    def __init__(self, args: Arguments) -> None:
        self.metrics: dict[str, float] = {}
        self.failures = 0
        self.trained = -1
        self.clock = StepClock()
        self.budget = RestartBudget("the trainer", args.trainer_max_restarts)
        super().__init__(args)

    def start(self) -> int:
        """Brings the trainer's weights live once it and the servers are up; returns the rollout to train.

        Raises:
            TrainError: the trainer was lost too often on the way, or Ray is dead.
        """
        passed_over = checkpoints.passed_over(self.args.save, self.args.load)
        if passed_over is not None:
            logger.warning("%s", passed_over)
        while True:
            try:
                return self.go_live()
            except TrainerDied as death:
                self.replace_trainer(death)

    def go_live(self) -> int:
        """Engines that share GPUs with trainers start first: an engine takes its share of the memory that it finds free,
        and what comes later is charged to its cache."""
        if self.args.colocate:
            self.wait_for_servers()
            if self.args.offload_rollout:
                self.publisher.release_engines()
        state = None if self.trainers is None else self.trainers.load()
        if not self.args.colocate:
            self.wait_for_servers()
        for spec in self.specs:
            if spec.url and spec.role != "engine":
                self.tracker.display.line(f"{spec.name} ready at {spec.url}{spec.welcome}")
        if self.trainers is None or state is None:
            return 0
        self.publisher.restore(self.trainers, state, self.make_way)
        repin(self.publisher)
        if (order := left_over(self.publisher.orders)) is not None:
            self.tracker.display.line(order)
        self.trained = self.restored = max(state.rollout_id, self.publisher.orders.trained)
        self.tracker.take_up(self.trained)
        self.tracker.display.line(beginning(self.args, self.trained))
        self.rollouts.go_on_after(self.trained)
        return self.trained + 1

    def request(self, rollout_id: int) -> PendingBatch:
        """Asks for a batch and returns at once."""
        return self.rollouts.request(rollout_id)

    def wait(self, batch: PendingBatch) -> None:
        """Returns when the batch is there. Where somebody goes back to an older version meanwhile, it is formed anew.

        Raises:
            Stopped: it is time to end.
            TrainerDied: it was lost meanwhile; it can be back before the batch is full.
            TrainError: Ray died, or the rollout side fails for good.
        """
        while True:
            self.went_back = False
            self.tracker.at(batch.rollout_id, f"waiting for rollout {batch.rollout_id}")
            self.look_around()
            self.metrics = self.rollouts.wait(batch, self.look_around)
            while self.trainers is not None and (reason := self.held()) is not None:
                self.tracker.at(batch.rollout_id, reason)
                time.sleep(PIN_INTERVAL)
                self.look_around()
            if not self.went_back or self.rollouts.same_again:
                self.look_for_stop()
                return
            # its samples may be those of a version that came back, or be quarantined now
            batch.ask(self.rollouts.manager)

    def held(self) -> str | None:
        """Why training waits although a batch is there; None: it does not."""
        if self.publisher.orders.pinned is not None:
            return f"version {self.publisher.orders.pinned} is pinned: training waits"
        return self.budget_spent()

    def budget_spent(self) -> str | None:
        """With --max-cost: that it is reached, told once."""
        args = self.args
        if args.max_cost is None or args.rented_prices is None:
            return None
        cost = cost_of(args.run_dir, read_prices(args.rented_prices, args.rented_model))
        if cost < args.max_cost:
            return None
        reason = (
            f"${cost:.2f} of --max-cost {args.max_cost:g} are spent: training has stopped, serving goes on"
        )
        if not self.told_of_cost:
            self.told_of_cost = True
            self.tracker.show(reason)
        return reason

    def look_at_servers(self) -> None:
        """What must live while there is no trainer."""
        self.runtime.check()
        self.watcher.check()
        if not self.publisher.busy:
            self.settle()
            self.external.look_around()

    def look_around(self) -> None:
        """What must live while something else is awaited. Raises Stopped when it is time to end."""
        self.look_for_stop()
        self.look_at_servers()
        if self.trainers is not None:
            self.trainers.check()
            if not self.publisher.busy:
                self.publisher.check_kept()
                self.went_back |= obey(self.publisher, self.trainers, self.trained)

    def look_for_stop(self) -> None:
        """To be called where the trainer stands between two steps."""
        if self.stopping:
            raise Stopped

    def unsaved(self) -> bool:
        """Whether something was trained that no checkpoint holds. Changes nothing, so that a signal's handler may ask."""
        known = max(
            self.restored, self.publisher.orders.trained, checkpoints.newest_rollout(Path(self.args.save))
        )
        return self.trainers is not None and self.trained > known

    def save_now(self) -> None:
        """Leaves a checkpoint of all that was trained and found good, between two steps: of the live version, or of a new
        one, live too, where the trainer has learned what none holds.

        Raises:
            EngineError, TrainError: there is none.
        """
        self.settle()
        if self.trainers is None:
            return
        self.trainers.finish_save()
        if not self.unsaved():
            return
        self.tracker.at(self.trained, f"a checkpoint after rollout {self.trained}")
        if self.publisher.must_export:
            self.take_turns("trainers")
        if self.publisher.unpublished:
            self.publisher.publish(self.trainers, self.trained, self.metrics, self.make_way, now=True)
            self.settle()
        else:
            self.publisher.save_live(self.trainers, self.trained, self.make_way)
        self.trainers.finish_save()

    def train(self, batch: PendingBatch) -> None:
        """One training step on a batch that is there.

        A batch that cannot be trained on is used up like any other and changes nothing.

        Raises:
            DataError, TrainError: too many batches in a row could not be trained on.
        """
        if self.trainers is None:
            return
        rollout_id, began = batch.rollout_id, time.monotonic()
        self.tracker.at(rollout_id, f"training on rollout {rollout_id}")
        try:
            self.take_turns("trainers")
            trained = self.trainers.train(rollout_id, batch.samples)
            self.failures = 0
        except TrainerDied:
            raise
        except (DataError, TrainError) as error:
            self.failures += 1
            if self.failures > FAILURES_IN_A_ROW:
                raise
            logger.error("rollout %d is skipped: %s", rollout_id, error)
            trained = {"skipped": 1.0}
        self.batch = batch
        self.metrics.update({f"train/{name}": value for name, value in trained.items()})
        self.metrics["perf/train_time"] = time.monotonic() - began
        self.trained = rollout_id

    def publish(self, rollout_id: int, behind: bool = False) -> None:
        """Brings the weights after `rollout_id` live everywhere, with a checkpoint when one is due.

        Args:
            behind: return when the trainer may go on; the weights go live while the next step trains. At most one
                version is on its way: the next call waits for it. Where that one is rejected then, the trainer goes back,
                and the batch that it has trained on meanwhile is trained on again; not where an order about versions
                waits, which gives that batch up too.

        Raises:
            EngineError: this version, or the one that was on its way, did not go live.
        """
        if self.settle() and self.batch is not None and self.publisher.orders.waiting() is None:
            logger.warning("rollout %d is trained again, from the live version", rollout_id)
            self.train(self.batch)
        self.batch = None
        if self.trainers is not None:
            self.tracker.at(rollout_id, f"the weights after rollout {rollout_id} go live")
            self.publisher.publish(self.trainers, rollout_id, self.metrics, self.make_way)
        self.untold = rollout_id, self.metrics
        if not behind:
            self.publisher.settle()
        self.metrics.update(self.clock.lap(self.metrics))
        self.tracker.expect(rollout_id, self.metrics)
        if not behind:
            self.settle()
        self.tracker.at(rollout_id + 1, f"after rollout {rollout_id}")

    def settle(self) -> bool:
        """Returns when the version that is on its way is live or rejected, and tells of its rollout; whether the trainer
        went back. Raises as `publish`."""
        went_back = self.publisher.settle()
        if self.untold is not None:
            rollout_id, metrics = self.untold
            self.untold = None
            self.tracker.log(rollout_id, dict(metrics))
        return went_back

    def tell_at_end(self) -> None:
        """In the moment of a signal: the row of a version that is live, and was not told yet."""
        publication = self.publisher.publication
        if self.untold is None or (publication is not None and not publication.went_well):
            return
        self.tracker.end_now(*self.untold)

    def evaluate_before(self, rollout_id: int) -> None:
        """The evaluation of the first weights, if the run evaluates at all."""
        if self.args.eval_interval and rollout_id == 0 and not self.args.skip_eval_before_train:
            evaluate(self.rollouts, self.tracker, rollout_id, self.look_for_stop)

    def evaluate_after(self, rollout_id: int) -> None:
        """The evaluation that is due after a rollout, and that of the last one."""
        interval = self.args.eval_interval
        if interval and ((rollout_id + 1) % interval == 0 or self.publisher.is_last(rollout_id)):
            self.settle()  # it is their evaluation
            evaluate(self.rollouts, self.tracker, rollout_id + 1, self.look_for_stop)

    def finish(self) -> None:
        """The end of a run: its last version is live, and what is written in the background is complete."""
        self.settle()
        if self.trainers is not None:
            self.trainers.finish_save()

    def recover(self, death: TrainerDied) -> int:
        """Starts the trainer again from its checkpoint; returns the rollout to go on with. Raises `death` where the run
        is asked to stop."""
        if self.stopping:
            raise death
        self.trained = -1  # what it had learned since its checkpoint is lost with it
        self.replace_trainer(death)
        return self.start()

    def replace_trainer(self, death: TrainerDied) -> None:
        """A new trainer in place of the lost one.

        The rollout manager is replaced too: a call in it that still waits for a batch would take the samples
        that are about to come back.

        Raises:
            TrainError: it was lost too often, or Ray is dead.
        """
        logger.warning("%s; starting again from the latest checkpoint", death)
        self.runtime.check()
        with suppress(TrainerDied):  # it cannot be told what became of the version on its way
            self.settle()
        self.settle()
        self.budget.take(death)
        assert self.trainers is not None
        self.trainers.kill()
        self.placement.make_whole(self.look_at_servers)
        self.trainers = TrainGroup(self.args, self.placement)
        self.rollouts.restart(-1)
