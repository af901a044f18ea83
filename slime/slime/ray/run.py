"""A training run: its actors, its servers, and the recovery of those that end or hang.

Servers restart by themselves (`ServerWatcher`), and `Rollouts` replaces a rollout manager while it waits for a batch.
`TrainingRun` does the rest: after the loss of the trainer it starts another one from the latest checkpoint and
publishes its weights again; the rollout side then takes back the samples that were leased or trained since. If Ray
itself fails, the driver exits, and the supervisor starts another one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ray.exceptions import RayActorError

from claw_base.run_folder.usage import cost_of, read_prices
from slime.errors import ClawError, ConfigError, DataError, TrainError
from slime.processes.started import note_started
from slime.ray.components import RunComponents
from slime.ray.forgetting import PeopleToForget
from slime.ray.rollouts import Rollouts
from slime.ray.train_group import TrainerDied, TrainGroup
from slime.ray.versions.adapters import AdapterTable
from slime.ray.versions.in_flight import VersionInFlight, VersionState
from slime.ray.versions.orders import execute_order, left_over, repin
from slime.ray.versions.publication import publish
from slime.ray.waiting import RestartBudget
from slime.tracking import StepClock, Tracker
from slime.tracking.lines import beginning
from slime.weights import checkpoints

if TYPE_CHECKING:
    from slime.flags import Arguments

logger = logging.getLogger(__name__)

# seconds between checks for an order while training is held
PIN_INTERVAL = 0.5
# consecutive failed batches after which the run stops
FAILURES_IN_A_ROW = 3


class Stopped(Exception):
    """A stop was requested, and the trainer is between two steps: a checkpoint can be written."""


@dataclass
class Progress:
    """Progress of a run, as rollout ids; -1: none.

    Attributes:
        trained: the last rollout that a training step consumed.
        restored: the last rollout in the weights that this driver started with.
        failures: consecutive batches that could not be trained on.
    """

    trained: int = -1
    restored: int = -1
    failures: int = 0


class CostLimit:
    """--max-cost: stops training when the run has spent that much. `show` is called once with the reason."""

    def __init__(self, args: Arguments, show: Callable[[str], None]) -> None:
        self.args, self.show = args, show
        self.shown = False

    def reached(self) -> str | None:
        """Returns the reason why training stops, or None."""
        args = self.args
        if args.max_cost is None or args.rented_prices is None:
            return None
        cost = cost_of(args.run_dir, read_prices(args.rented_prices, args.rented_model))
        if cost < args.max_cost:
            return None
        reason = (
            f"${cost:.2f} of --max-cost {args.max_cost:g} are spent: training has stopped, serving continues"
        )
        if not self.shown:
            self.shown = True
            self.show(reason)
        return reason


class TrainingRun(RunComponents):
    """The steps of a training loop. The loop requests a version, waits for its batch, trains on it and publishes it.
    `versions.in_flight` describes the states of a version and which of these steps enters them.

    Args:
        args: parsed arguments of the driver.

    Attributes:
        in_flight: the version that was published last, settled or not; None before the first one and after a restart.
        publisher: publisher of the trained policy; with --train-adapters, of the current adapter.
        base: publisher of the model, see `publisher`.
        adapters: all trained adapters; None: the model itself is trained.
        stopping: a signal requested a stop; the next `look_for_stop` raises Stopped.
    """

    in_flight: VersionInFlight | None = None
    adapters: AdapterTable | None = None
    stopping = False

    def __init__(self, args: Arguments) -> None:
        self.progress = Progress()
        self.clock = StepClock()
        self.budget = RestartBudget("the trainer", args.trainer_max_restarts)
        super().__init__(args)
        self.base = self.publisher
        self.cost = CostLimit(args, self.tracker.show)
        self.people = PeopleToForget(args)

    def start(self) -> int:
        """Publishes the trainer's weights once the trainer and the servers are up; returns the rollout to train.

        Raises:
            TrainError: the trainer was lost too often, or Ray has failed.
        """
        warning = checkpoints.ignored_checkpoint_warning(self.args.save, self.args.load)
        if warning is not None:
            logger.warning("%s", warning)
        while True:
            try:
                rollout_id = self.go_live()
                note_started(Path(self.args.run_dir))
                return rollout_id
            except TrainerDied as death:
                self.replace_trainer(death)

    def go_live(self) -> int:
        """Makes the loaded weights live; returns the rollout to train. Engines that share GPUs with trainers start
        first: an engine reserves a share of the free memory, and counts later allocations against its cache."""
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
        self.in_flight = None
        self.publisher = self.base
        self.publisher.restore(self.trainers, state, self.release_gpus)
        if self.args.train_adapters is None:
            repin(self.publisher)
        if (order := left_over(self.publisher.orders)) is not None:
            self.tracker.display.line(order)
        trained = max(state.rollout_id, self.publisher.orders.trained)
        if self.args.train_adapters is not None:
            self.adapters = AdapterTable(self.args, self.base)
            trained = max(trained, self.adapters.trained)
            self.forget(trained)
            self.adapters.serve_checkpoints()
        self.progress.trained = self.progress.restored = trained
        self.tracker.log_pending(trained)
        self.tracker.display.line(beginning(self.args, trained))
        self.rollouts.resume_after(trained)
        return trained + 1

    def request(self, rollout_id: int) -> VersionInFlight:
        """Requests the batch of a new version and returns at once."""
        return VersionInFlight(self.rollouts.request(rollout_id))

    def wait(self, version: VersionInFlight) -> None:
        """Returns when the batch is complete. If a rollback happens meanwhile, the batch is requested again.

        Raises:
            Stopped: a stop was requested.
            TrainerDied: the trainer was lost; it can be restarted before the batch is complete.
            TrainError: Ray failed, or rollouts fail permanently.
        """
        look = partial(self.check_processes, version)
        while True:
            version.outdated = False
            self.tracker.at(version.rollout_id, f"waiting for rollout {version.rollout_id}")
            look()
            version.metrics = self.rollouts.wait(version.batch, look)
            while self.trainers is not None and (reason := self.held()) is not None:
                self.tracker.at(version.rollout_id, reason)
                time.sleep(PIN_INTERVAL)
                look()
            if not version.outdated or self.rollouts.repeats_samples:
                self.look_for_stop()
                return
            # its samples may belong to a rolled-back version, and may be quarantined or deleted now
            self.people.remove_files([version.rollout_id])
            version.batch.ask(self.rollouts.manager)

    def held(self) -> str | None:
        """Returns why training is held although a batch is complete, or None."""
        if self.publisher.orders.pinned is not None:
            return f"version {self.publisher.orders.pinned} is pinned: training waits"
        return self.cost.reached()

    @property
    def busy(self) -> bool:
        """Returns whether a version is on its way to the engines."""
        return self.in_flight is not None and self.in_flight.busy

    def check_servers(self) -> None:
        """Checks the processes that run without a trainer, and settles a version whose thread has ended."""
        self.runtime.check()
        self.watcher.check()
        if not self.busy:
            self.settle()
            self.external.check_engines()
            self.nodes.check_machines()

    def check_processes(self, awaited: VersionInFlight | None = None) -> None:
        """Checks that all required processes are alive and carries out orders about versions; call it while waiting.

        Args:
            awaited: the version whose batch is awaited; a rollback makes it outdated.

        Raises:
            Stopped: a stop was requested.
            TrainerDied: the trainer was lost.
        """
        self.look_for_stop()
        self.check_servers()
        if self.trainers is None:
            return
        self.trainers.check()
        if self.in_flight is not None and not self.in_flight.settled:
            return
        if self.adapters is not None:
            went_back = self.adapters.execute_order(self.trainers, self.progress.trained)
        else:
            self.publisher.check_kept()
            went_back = execute_order(self.publisher, self.trainers, self.progress.trained)
        if self.forget(self.progress.trained) or went_back:
            self.in_flight = None
            if awaited is not None:
                awaited.outdated = True

    def forget(self, trained: int) -> bool:
        """Removes the remaining data of people to be forgotten; returns whether there were any, since a batch in
        preparation may contain their turns. Raises TrainerDied."""
        assert self.trainers is not None
        # a run that trains no adapters may have the files of those of an earlier start
        table = self.adapters or AdapterTable(self.args, self.base)
        done = self.people.carry_out(self.trainers, table, self.base.engines, trained)
        for one in done:
            if self.adapters is not None and one.adapter is not None:
                self.publisher = self.adapters.successor_of(self.publisher)
        return bool(done)

    def look_for_stop(self) -> None:
        """Raises Stopped if a stop was requested; called between two steps of the trainer."""
        if self.stopping:
            raise Stopped

    def unsaved(self) -> bool:
        """Returns whether the last training step is in no checkpoint. A signal handler may call it: it changes
        nothing."""
        known = max(
            self.progress.restored,
            self.publisher.orders.trained,
            checkpoints.newest_rollout(self.publisher.save_dir),
        )
        return self.trainers is not None and self.progress.trained > known

    def save_now(self) -> None:
        """Writes a checkpoint of all accepted training between two steps: of the live version, or of a new version,
        which goes live too, if the last step was HELD.

        Raises:
            EngineError, TrainError: the checkpoint was not written.
        """
        self.settle()
        if self.trainers is None:
            return
        self.trainers.finish_save()
        if not self.unsaved():
            return
        trained, version = self.progress.trained, self.in_flight
        self.tracker.at(trained, f"a checkpoint after rollout {trained}")
        held = version is not None and version.state is VersionState.HELD
        if held or self.publisher.serves_adapter:
            self.give_gpus_to("trainers")
        if version is not None and held:
            publish(self.publisher, self.trainers, version, self.release_gpus, now=True)
            self.settle()
        else:
            self.publisher.save_live(self.trainers, trained, self.release_gpus)
        self.trainers.finish_save()

    def train(self, version: VersionInFlight) -> None:
        """Trains one step on a batch that is complete.

        A batch that cannot be trained on is consumed like any other, but changes nothing.

        Raises:
            DataError, TrainError: too many consecutive batches could not be trained on.
        """
        if self.trainers is None:
            return
        rollout_id, began = version.rollout_id, time.monotonic()
        version.state = VersionState.TRAINING
        self.tracker.at(rollout_id, f"training on rollout {rollout_id}")
        try:
            self.give_gpus_to("trainers")
            self.load_adapter(version)
            trained = self.trainers.train(rollout_id, version.batch.samples)
            self.progress.failures = 0
        except TrainerDied:
            raise
        except (DataError, TrainError) as error:
            self.progress.failures += 1
            if self.progress.failures > FAILURES_IN_A_ROW:
                raise
            logger.error("rollout %d is skipped: %s", rollout_id, error)
            trained = {"skipped": 1.0}
        version.metrics.update({f"train/{name}": value for name, value in trained.items()})
        version.metrics["perf/train_time"] = time.monotonic() - began
        self.progress.trained = rollout_id

    def load_adapter(self, version: VersionInFlight) -> None:
        """Loads the adapter of the batch into the trainer; the next steps train that adapter.

        Raises:
            DataError: the batch names no adapter.
        """
        if self.adapters is None or self.trainers is None:
            return
        name = version.batch.adapter()
        if name is None:
            raise DataError("the rollout function returned no adapter name for this batch")
        version.adapter = name
        self.settle()
        self.publisher = self.adapters.load(self.trainers, name, version.rollout_id)

    def publish(self, version: VersionInFlight, overlap: bool = False) -> None:
        """Makes a trained version live on every engine, and writes a checkpoint if one is due.

        The version before it is settled first. If that one is rejected, the trainer goes back and trains this
        version's batch again; if an order about versions is pending, the batch is dropped instead.

        Args:
            overlap: return when the trainer may continue, while the version is EXAMINING.

        Raises:
            EngineError: this version, or the one before it, did not go live.
        """
        # the next batch may be for another adapter, which replaces this one in the trainer
        rollout_id, overlap = version.rollout_id, overlap and self.adapters is None
        trained = version.state is VersionState.TRAINING
        if self.settle() and trained and self.publisher.orders.waiting() is None:
            logger.warning("rollout %d is trained again, from the live version", rollout_id)
            self.train(version)
        if self.trainers is not None:
            self.tracker.at(rollout_id, f"the weights after rollout {rollout_id} go live")
            publish(self.publisher, self.trainers, version, self.release_gpus)
        # no step trains on it again
        version.batch.release()
        version.row_pending = True
        self.in_flight = version
        if not overlap:
            version.settle()
        version.metrics.update(self.clock.lap(version.metrics))
        self.tracker.expect(rollout_id, version.metrics)
        if not overlap:
            self.settle()
        self.tracker.at(rollout_id + 1, f"after rollout {rollout_id}")

    def settle(self) -> bool:
        """Waits until the version in flight is live or rejected, and logs its metrics; returns whether the trainer
        went back. Raises as `publish`."""
        version = self.in_flight
        if version is None:
            return False
        went_back = version.settle()
        if version.row_pending:
            version.row_pending = False
            self.tracker.log(version.rollout_id, dict(version.metrics), version.adapter)
        return went_back

    def log_at_end(self) -> None:
        """Writes the pending metrics row of a live version; a signal handler calls it."""
        version = self.in_flight
        if version is not None and version.row_pending and version.may_be_served:
            self.tracker.end_now(version.rollout_id, version.metrics)

    def evaluate_before(self, rollout_id: int) -> None:
        """Evaluates the first weights, if the run evaluates at all."""
        if self.args.eval_interval and rollout_id == 0 and not self.args.skip_eval_before_train:
            evaluate(self.rollouts, self.tracker, rollout_id, self.look_for_stop)

    def evaluate_after(self, rollout_id: int) -> None:
        """Evaluates if it is due after this rollout, or if this is the last one."""
        interval = self.args.eval_interval
        if interval and ((rollout_id + 1) % interval == 0 or self.publisher.is_last(rollout_id)):
            # the evaluation measures the version of this rollout
            self.settle()
            evaluate(self.rollouts, self.tracker, rollout_id + 1, self.look_for_stop)

    def finish(self) -> None:
        """Ends a run after its last version is live and every file is complete."""
        self.settle()
        if self.trainers is not None:
            self.trainers.finish_save()

    def recover(self, death: TrainerDied) -> int:
        """Starts the trainer again from its checkpoint; returns the rollout to train. Raises `death` if a stop was
        requested."""
        if self.stopping:
            raise death
        # steps since the last checkpoint are lost
        self.progress.trained = -1
        self.replace_trainer(death)
        return self.start()

    def replace_trainer(self, death: TrainerDied) -> None:
        """Starts a new trainer in place of the lost one.

        The rollout manager is replaced too: a call that still waits for a batch would take the samples that are about
        to be returned.

        Raises:
            TrainError: the trainer was lost too often, or Ray has failed.
        """
        logger.warning("%s; starting again from the latest checkpoint", death)
        self.runtime.check()
        # the lost trainer cannot accept or undo the version in flight; its row is logged by the second call
        with suppress(TrainerDied):
            self.settle()
        self.settle()
        self.budget.take(death)
        assert self.trainers is not None
        self.trainers.kill()
        self.placement.wait_until_complete(self.check_servers)
        self.trainers = TrainGroup(self.args, self.placement)
        self.rollouts.restart(-1)


def evaluate(rollouts: Rollouts, tracker: Tracker, step: int, look: Callable[[], None]) -> None:
    """Evaluates after `step` rollouts. A failed evaluation is logged, and training continues.

    Args:
        look: called while waiting; may raise.

    Raises:
        ConfigError: the evaluation is misconfigured.
    """
    began = time.monotonic()
    tracker.at(step, f"evaluating after {step} rollouts")
    try:
        metrics = rollouts.evaluate(step, look)
    except ConfigError:
        raise
    except (ClawError, RayActorError) as error:
        logger.error("the evaluation after %d rollouts failed: %s", step, str(error).splitlines()[0])
        return
    tracker.log_evaluation(step, {**metrics, "perf/eval_time": time.monotonic() - began})
