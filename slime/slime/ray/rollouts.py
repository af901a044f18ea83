"""The actor that turns prompts into training batches, and the driver's client of it: requests and recovery."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from ray.exceptions import RayActorError

from claw_base.run_folder import records
from slime import replay
from slime.errors import ConfigError, DataError
from slime.processes import control
from slime.ray import actor_process
from slime.ray.cluster import here
from slime.ray.limits import load_limit, save_limit
from slime.ray.waiting import Heartbeat, RestartBudget, TaskFailed, WaitTimeout, gather
from slime.rollout.service import RolloutService
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)

RECORD = "buffer"


class PendingBatch:
    """A requested batch: references to its samples, its metrics, and the adapter that is trained on it."""

    def __init__(self, rollout_id: int, manager: object) -> None:
        self.rollout_id = rollout_id
        self.ask(manager)

    def ask(self, manager: Any) -> None:
        self.samples, self.metrics, self.trained = manager.generate.remote(self.rollout_id)

    def adapter(self) -> str | None:
        """Returns the adapter that a complete batch trains; None: there is only one policy."""
        name: str | None = gather([self.trained], f"rollout {self.rollout_id}")[0]
        return name

    def release(self) -> None:
        """Drops the references, so that Ray frees the samples."""
        self.samples = self.metrics = self.trained = None


class Rollouts:
    """Requests batches from a rollout manager, and replaces a manager that died or hangs.

    The data source's state is written after each batch, so that a new manager continues there.
    """

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.has_data = not args.disable_rollout_global_dataset
        self.repeats_samples = self.has_data or args.load_debug_rollout_data is not None
        self.delivered, self.batches = -1, 0
        self.budget = RestartBudget("the rollout manager", args.trainer_max_restarts)
        self.start()

    def start(self) -> None:
        on_this_node = RolloutManager.options(scheduling_strategy=here())  # type: ignore[attr-defined]
        self.manager = on_this_node.remote(self.args)
        self.opened = self.manager.open.remote()
        self.heartbeat = Heartbeat(
            lambda: self.manager.status.remote(), "the rollout manager", self.args.health_timeout
        )

    def restart(self, delivered: int) -> None:
        """Starts a new manager that continues after rollout `delivered` (-1: from the start)."""
        ray.kill(self.manager)
        record = records.read_record(Path(self.args.run_dir), RECORD)
        if record is not None:
            control.terminate(record, grace=0.0)
        self.start()
        self.resume_after(delivered)

    def resume_after(self, delivered: int) -> None:
        """Restores the state of the data source after rollout `delivered`.

        Raises:
            ConfigError: unusable prompts.
        """
        self.delivered = delivered
        with (
            self.final_errors(),
            contextlib.suppress(RayActorError, WaitTimeout),
        ):  # `wait` handles those
            gather([self.opened], "loading the prompts", load_limit(self.args))
        if self.has_data and delivered >= 0:
            what = f"loading the data source after rollout {delivered}"
            gather([self.manager.load.remote(delivered)], what, load_limit(self.args))

    def request(self, rollout_id: int) -> PendingBatch:
        """Requests a batch and returns at once."""
        return PendingBatch(rollout_id, self.manager)

    def wait(self, batch: PendingBatch, look: Any) -> dict[str, float]:
        """Returns the metrics of a batch when it is complete and the data source's state is on disk.

        Args:
            look: called while waiting; may raise.

        Raises:
            TaskFailed: the rollout function failed.
            TrainError: too many managers were lost.
            ConfigError: these prompts cannot fill a batch.
        """
        began = time.monotonic()
        what = f"rollout {batch.rollout_id}"

        def check_all() -> None:
            self.heartbeat.check()
            look()

        while True:
            try:
                with self.final_errors():
                    [metrics] = gather([batch.metrics], what, self.args.rollout_timeout, check_all)
                self.keep_state(batch.rollout_id, check_all)
                break
            except (RayActorError, WaitTimeout) as lost:
                reason = str(lost).splitlines()[0]
                logger.warning(
                    "%s; last status: %s. Restarting the rollout manager", reason, self.heartbeat.answer
                )
                self.budget.take(lost)
                self.restart(self.delivered)
                batch.ask(self.manager)
        self.delivered, self.batches = batch.rollout_id, self.batches + 1
        return {**metrics, "perf/wait_time": time.monotonic() - began}

    @contextlib.contextmanager
    def final_errors(self) -> Iterator[None]:
        """Turns errors that would repeat after a restart into ConfigError, for runs over files; other sources have
        other samples.

        Raises:
            ConfigError: unusable data, or a hook that fails before this driver's first batch.
        """
        try:
            yield
        except (DataError, TaskFailed) as error:
            if not self.repeats_samples or (isinstance(error, TaskFailed) and self.batches):
                raise
            if isinstance(error, TaskFailed):
                logger.exception(
                    "the rollout function failed before its first batch"
                )  # with the hook's traceback
            raise ConfigError(str(error)) from error

    def keep_state(self, rollout_id: int, look: Callable[[], None]) -> None:
        """Writes the state of the data source after a rollout, before the checkpoint that needs it. `look` is called
        meanwhile, and notices a manager that has just stopped."""
        if self.has_data:
            what = f"saving the data source's state after rollout {rollout_id}"
            gather([self.manager.save.remote(rollout_id)], what, save_limit(self.args), look)

    def evaluate(self, rollout_id: int, look: Callable[[], None]) -> dict[str, float]:
        """Returns the metrics of an evaluation. Calls `look` meanwhile. Raises WaitTimeout, TaskFailed,
        RayActorError, or what `look` raises."""

        def check_all() -> None:
            self.heartbeat.check()
            look()

        answer = [self.manager.evaluate.remote(rollout_id)]
        what = f"the evaluation at rollout {rollout_id}"
        metrics: dict[str, float] = gather(answer, what, self.args.eval_timeout, check_all)[0]
        return metrics


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=8)
@actor_process.logs_failures
class RolloutManager:
    """Runs each call in its own thread, so that no call waits for a batch in preparation.

    If the actor dies, the driver starts another, restores its data and requests the batch again: a rollout function
    must return the same samples for the same `rollout_id`, or equally good new ones.
    """

    def __init__(self, args: GenerationSide) -> None:
        actor_process.enter(Path(args.run_dir), "buffer", role="buffer")
        self.args = args
        self.service: RolloutService | None = None
        self.opening = threading.Lock()

    def open(self) -> None:
        """Reads the data; errors are raised here and by every call, so that the actor does not die."""
        self._opened()

    def _opened(self) -> RolloutService:
        with self.opening:
            if self.service is None:
                self.service = RolloutService(self.args)
            return self.service

    @ray.method(num_returns=3)  # type: ignore[untyped-decorator]
    def generate(self, rollout_id: int) -> tuple[list[Sample], dict[str, float], str | None]:
        """Blocks until a batch is complete; returns its samples, its metrics, and the adapter that is trained on
        it."""
        service = self._opened()
        samples, metrics = service.generate(rollout_id)
        if self.args.save_debug_rollout_data is not None:
            replay.save(self.args.save_debug_rollout_data, rollout_id, samples)
        return samples, metrics, service.policy(rollout_id)

    def evaluate(self, rollout_id: int) -> dict[str, float]:
        """Evaluates the live weights; returns `eval/*` metrics."""
        return self._opened().evaluate(rollout_id)

    def save(self, rollout_id: int) -> None:
        """Writes the state of the data source after `rollout_id`."""
        self._opened().save(rollout_id)

    def load(self, rollout_id: int) -> None:
        """Restores the state of the data source after `rollout_id`."""
        self._opened().load(rollout_id)

    def status(self) -> dict[str, Any]:
        """Returns what the rollout waits for, and for how many seconds."""
        return {"waiting": {}} if self.service is None else self.service.status()
