"""The actor that turns prompts into training batches, and the driver's side of it: requests and recovery."""

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
    """A batch that was asked for: references to its samples, its metrics, and the adapter that is trained on it."""

    def __init__(self, rollout_id: int, manager: object) -> None:
        self.rollout_id = rollout_id
        self.ask(manager)

    def ask(self, manager: Any) -> None:
        self.samples, self.metrics, self.trained = manager.generate.remote(self.rollout_id)

    def adapter(self) -> str | None:
        """The adapter that is trained on a batch that is complete; None: there is one policy."""
        name: str | None = gather([self.trained], f"rollout {self.rollout_id}")[0]
        return name

    def release(self) -> None:
        """Drops the references, so that Ray frees the samples."""
        self.samples = self.metrics = self.trained = None


class Rollouts:
    """Asks a rollout manager for batches, and another one where that ended or hangs.

    The data source's state is written after each batch, so another manager goes on where the last one was.
    """

    def __init__(self, args: Arguments) -> None:
        self.args = args
        self.has_data = not args.disable_rollout_global_dataset
        self.same_again = self.has_data or args.load_debug_rollout_data is not None
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
        """Another manager, which goes on after rollout `delivered` (-1: from the start)."""
        ray.kill(self.manager)
        record = records.read_record(Path(self.args.run_dir), RECORD)
        if record is not None:
            control.terminate(record, grace=0.0)
        self.start()
        self.go_on_after(delivered)

    def go_on_after(self, delivered: int) -> None:
        """Restores the state of the data source after that rollout.

        Raises:
            ConfigError: prompts that cannot be used.
        """
        self.delivered = delivered
        with (
            self.final_errors(),
            contextlib.suppress(RayActorError, WaitTimeout),
        ):  # `wait` sees to those
            gather([self.opened], "the prompts", load_limit(self.args))
        if self.has_data and delivered >= 0:
            what = f"the data source after rollout {delivered}"
            gather([self.manager.load.remote(delivered)], what, load_limit(self.args))

    def request(self, rollout_id: int) -> PendingBatch:
        """Asks for a batch and returns at once."""
        return PendingBatch(rollout_id, self.manager)

    def wait(self, batch: PendingBatch, look: Any) -> dict[str, float]:
        """Returns the metrics of a batch when it is there, and the state of the data source on disk.

        Args:
            look: called meanwhile; may raise.

        Raises:
            TaskFailed: the rollout function failed. TrainError: managers are lost too often.
            ConfigError: no batch can be made of these prompts.
        """
        began = time.monotonic()
        what = f"rollout {batch.rollout_id}"

        def look_around() -> None:
            self.heartbeat.check()
            look()

        while True:
            try:
                with self.final_errors():
                    [metrics] = gather([batch.metrics], what, self.args.rollout_timeout, look_around)
                self.keep_state(batch.rollout_id, look_around)
                break
            except (RayActorError, WaitTimeout) as lost:
                reason = str(lost).splitlines()[0]
                logger.warning(
                    "%s; last seen: %s. Starting the rollout manager again", reason, self.heartbeat.answer
                )
                self.budget.take(lost)
                self.restart(self.delivered)
                batch.ask(self.manager)
        self.delivered, self.batches = batch.rollout_id, self.batches + 1
        return {**metrics, "perf/wait_time": time.monotonic() - began}

    @contextlib.contextmanager
    def final_errors(self) -> Iterator[None]:
        """Ends a run over files for an error that would come again after a restart; other sources have other samples.

        Raises:
            ConfigError: data that cannot be used, or a hook that fails before this driver had a single batch.
        """
        try:
            yield
        except (DataError, TaskFailed) as error:
            if not self.same_again or (isinstance(error, TaskFailed) and self.batches):
                raise
            if isinstance(error, TaskFailed):
                logger.exception("it failed before there was a batch")  # with the trace of the hook
            raise ConfigError(str(error)) from error

    def keep_state(self, rollout_id: int, look: Callable[[], None]) -> None:
        """Writes the state of the data source after a rollout, before the checkpoint that needs it. `look`: called
        meanwhile; a manager that was stopped just then is noticed by it."""
        if self.has_data:
            what = f"the data source's state after rollout {rollout_id}"
            gather([self.manager.save.remote(rollout_id)], what, save_limit(self.args), look)

    def evaluate(self, rollout_id: int, look: Callable[[], None]) -> dict[str, float]:
        """Metrics of an evaluation. Raises WaitTimeout, TaskFailed, RayActorError, or what `look` raises, which is called
        meanwhile."""

        def look_around() -> None:
            self.heartbeat.check()
            look()

        answer = [self.manager.evaluate.remote(rollout_id)]
        what = f"the evaluation at rollout {rollout_id}"
        metrics: dict[str, float] = gather(answer, what, self.args.eval_timeout, look_around)[0]
        return metrics


@ray.remote(num_cpus=0, max_restarts=0, max_concurrency=8)
@actor_process.logs_failures
class RolloutManager:
    """Each call runs in a thread of its own, so that none waits behind a batch that is being made.

    When it dies the driver starts another, restores its data and asks for the batch again: a rollout function
    must give the same `rollout_id` the same samples, or new ones as good.
    """

    def __init__(self, args: GenerationSide) -> None:
        actor_process.enter(Path(args.run_dir), "buffer", role="buffer")
        self.args = args
        self.service: RolloutService | None = None
        self.opening = threading.Lock()

    def open(self) -> None:
        """Reads the data; whatever is wrong with it is raised here and by every call, not as the end of the actor."""
        self._opened()

    def _opened(self) -> RolloutService:
        with self.opening:
            if self.service is None:
                self.service = RolloutService(self.args)
            return self.service

    @ray.method(num_returns=3)  # type: ignore[untyped-decorator]
    def generate(self, rollout_id: int) -> tuple[list[Sample], dict[str, float], str | None]:
        """Blocks until there is a batch; returns its samples, its metrics, and the adapter that is trained on it."""
        service = self._opened()
        samples, metrics = service.generate(rollout_id)
        if self.args.save_debug_rollout_data is not None:
            replay.save(self.args.save_debug_rollout_data, rollout_id, samples)
        return samples, metrics, service.policy(rollout_id)

    def evaluate(self, rollout_id: int) -> dict[str, float]:
        """Evaluates the weights that serve now; returns `eval/*` metrics."""
        return self._opened().evaluate(rollout_id)

    def save(self, rollout_id: int) -> None:
        """Writes the state of the data source after `rollout_id`."""
        self._opened().save(rollout_id)

    def load(self, rollout_id: int) -> None:
        """Goes on with the data where a run stood after `rollout_id`."""
        self._opened().load(rollout_id)

    def status(self) -> dict[str, Any]:
        """Returns what the rollout waits for, and since how many seconds."""
        return {"waiting": {}} if self.service is None else self.service.status()
