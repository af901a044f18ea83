"""The default rollout: sends groups of prompts to the engines until a batch is full; keeps unfinished ones.

More groups than a batch needs may be running (`--over-sampling-batch-size`, dropped groups). When it is full,
the rest is interrupted and returned to the data source: finished groups unchanged, running answers to be
continued (`--partial-rollout`) or restarted.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slime.errors import DataError, EngineError
from slime.hooks import load_hook
from slime.rollout.engine_pool import Interrupt
from slime.rollout.evaluation import evaluate
from slime.rollout.event_loop import run
from slime.rollout.generate import generate
from slime.rollout.group_filter import GroupFilter, Verdict
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import GenerateState
from slime.types import Group, RolloutFnEvalOutput, RolloutFnTrainOutput, group_id, to_retry

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide
    from slime.rollout.data_source import DataSource

__all__ = ["GenerateState", "generate", "generate_rollout"]

logger = logging.getLogger(__name__)

ABORT_AGAIN = 0.5  # seconds between rounds of aborts: a request may reach its engine after its abort
ABORT_TIMEOUT = 30.0  # seconds to wait for interrupted samples before they are restarted


def generate_rollout(
    args: GenerationSide, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Returns one batch of `--rollout-batch-size` finished groups, in the order in which they were started.

    Raises:
        ConfigError: flags are invalid.
        DataError: there are no prompts, or too many consecutive groups were dropped.
        EngineError: no group was finished for `--rollout-stall-timeout` seconds.
    """
    if evaluation:
        return evaluate(args, rollout_id)
    return run(Rollout(args, rollout_id, data_source).collect(), args.rollout_stall_timeout)


class Rollout:
    """The collection of one batch."""

    def __init__(self, args: GenerationSide, rollout_id: int, source: DataSource) -> None:
        self.args, self.rollout_id, self.source = args, rollout_id, source
        self.interrupt = Interrupt()
        self.state = GenerateState.of(args)
        self.runner = SampleRunner(args, rollout_id, self.state.sampling_params, interrupt=self.interrupt)
        self.group_filter = GroupFilter(args)
        self.order: dict[int | str, int] = {}
        self.running: dict[asyncio.Task[list[Any]], Group] = {}
        self.accepted: list[Group] = []
        self.returned = 0

    async def collect(self) -> RolloutFnTrainOutput:
        try:
            while len(self.accepted) < self.args.rollout_batch_size and not self._use_reserve():
                await self._start_missing()
                await self._take_finished()
        except BaseException:
            await self._give_up()
            raise
        await self._stop()
        batch = await self._batch()
        return RolloutFnTrainOutput(samples=batch, metrics=self._metrics())

    async def _start_missing(self) -> None:
        """Starts `--over-sampling-batch-size` groups whenever the accepted and running ones cannot fill the
        batch."""
        assert self.args.over_sampling_batch_size is not None
        while len(self.accepted) + len(self.running) < self.args.rollout_batch_size:
            groups = await asyncio.to_thread(self.source.get_samples, self.args.over_sampling_batch_size)
            if not groups and not self.running:
                raise DataError(f"rollout {self.rollout_id}: the data source has no prompts")
            for group in groups:
                self.order.setdefault(group_id(group), len(self.order))
                self._start(group)
            if not groups:
                return

    def _start(self, group: Group) -> None:
        self.running[asyncio.create_task(self.runner.run_group(group))] = group

    async def _take_finished(self) -> None:
        timeout = self.args.rollout_stall_timeout
        done, _ = await asyncio.wait(self.running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if not done:
            raise EngineError(
                f"rollout {self.rollout_id}: no group was finished for {timeout:g} s "
                f"(--rollout-stall-timeout); {len(self.accepted)} of "
                f"{self.args.rollout_batch_size} are finished and {len(self.running)} running"
            )
        for task in sorted(done, key=lambda task: self.order[group_id(self.running[task])]):
            del self.running[task]
            self._take(task.result())

    def _take(self, group: Group) -> None:
        verdict = self.group_filter.judge(group)
        if verdict is Verdict.ACCEPT:
            self.accepted.append(group)
        elif verdict is Verdict.RETRY:
            self._start(to_retry(group, self.args.partial_rollout))
        elif not any(group is kept for kept in self.group_filter.reserve):
            discard(self.source, [group])

    def _use_reserve(self) -> bool:
        """Fills the batch from the reserve after too many consecutive groups were dropped.

        Raises:
            DataError: the reserve is too small.
        """
        if not self.group_filter.exhausted:
            return False
        missing = self.args.rollout_batch_size - len(self.accepted)
        if len(self.group_filter.reserve) < missing:
            raise self.group_filter.error()
        self.accepted += self.group_filter.reserve[:missing]
        self.group_filter.reserve = self.group_filter.reserve[missing:]
        return True

    async def _give_up(self) -> None:
        """Cancels running requests; closing a connection aborts its request."""
        self.interrupt.set = True
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)

    async def _stop(self) -> None:
        """Interrupts running requests; returns their samples and surplus groups to the data source."""
        deadline = time.monotonic() + ABORT_TIMEOUT
        pending = set(self.running)
        while pending and time.monotonic() < deadline:
            await self.state.pool.abort(self.interrupt)
            _, pending = await asyncio.wait(pending, timeout=ABORT_AGAIN)
        await self._give_up()
        surplus = self.accepted[self.args.rollout_batch_size :]
        self.accepted = self.accepted[: self.args.rollout_batch_size]
        groups = sorted(
            [*surplus, *map(self._interrupted, self.running)], key=lambda g: self.order[group_id(g)]
        )
        discard(self.source, self.group_filter.reserve)
        if groups:
            await asyncio.to_thread(self.source.add_samples, groups)
        self.returned = len(groups)

    def _interrupted(self, task: asyncio.Task[list[Any]]) -> Group:
        """Returns the samples of an interrupted group, or its prompts if it did not stop in time."""
        before = self.running[task]
        if task.cancelled() or task.exception() is not None:
            return to_retry(before, keep_partial=False)
        return to_retry(task.result(), self.args.partial_rollout)

    async def _batch(self) -> list[Any]:
        batch = sorted(self.accepted, key=lambda group: self.order[group_id(group)])
        if (sample_filter := load_hook(self.args, "rollout_sample_filter_path")) is not None:
            await asyncio.to_thread(sample_filter, self.args, batch)
        if (process := load_hook(self.args, "rollout_all_samples_process_path")) is not None:
            await asyncio.to_thread(process, self.args, self.group_filter.seen, self.source.get_samples)
        return batch

    def _metrics(self) -> dict[str, float]:
        return self.group_filter.metrics() | {
            "rollout/returned_groups": self.returned,
            "rollout/request_retries": self.state.pool.take_retries(),
        }


def discard(source: DataSource, groups: Sequence[Group]) -> None:
    """Reports dropped groups to a data source that tracks its groups."""
    if groups and hasattr(source, "discard_samples"):
        source.discard_samples(groups)
