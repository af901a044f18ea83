"""A producer of groups that never stops: it works across rollouts and weight updates, and no older than allowed."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slime.errors import DataError, EngineError
from slime.rollout.group_filter import GroupFilter, Verdict
from slime.rollout.groups import Group, to_retry
from slime.rollout.policy_clock import PolicyClock
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.sglang_rollout import discard
from slime.rollout.staleness_bound import may_start, missing
from slime.rollout.state import GenerateState

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide
    from slime.rollout.data_source import DataSource

logger = logging.getLogger(__name__)

IDLE = 0.05  # seconds between looks whether more may start
BATCHES_AHEAD = 2  # without --max-staleness: groups that are started and not handed out, in batches


@dataclass
class Started:
    """A group under way or finished. `trained`: rollouts that the weights it started with were trained on."""

    group: Group
    number: int
    trained: int


class Producer:
    """Keeps groups under way for one data source; lives on the rollout loop.

    Args:
        source: asked for one group at a time, when it may start.
    """

    def __init__(self, args: GenerationSide, source: DataSource, rollout_id: int) -> None:
        self.args, self.source = args, source
        self.next_rollout = rollout_id
        self.state = GenerateState.of(args)
        self.clock = PolicyClock(args.run_dir, self.state.pool)
        self.group_filter = GroupFilter(args)
        self.running: dict[asyncio.Task[list[Any]], Started] = {}
        self.ready: list[Started] = []
        self.reserve: list[Started] = []
        self.count = 0
        self.last_finish = time.monotonic()
        self.work = asyncio.create_task(self._produce())

    @property
    def open(self) -> int:
        """Groups that are started and not handed out."""
        return len(self.running) + len(self.ready)

    async def batch(self, rollout_id: int) -> list[Started]:
        """Waits for the batch of `rollout_id`, takes it out, the groups due first, and lets more start.

        Raises:
            DataError: no prompts, or too many groups in a row that had to be dropped.
            EngineError: no group was finished for `--rollout-stall-timeout` seconds.
        """
        self.next_rollout = rollout_id
        self.last_finish = time.monotonic()
        while self._waits_for(rollout_id):
            if self.work.done():
                self.work.result()
            self._check_stall(rollout_id)
            await asyncio.sleep(IDLE)
        self.ready.sort(key=lambda started: (started.trained, started.number))
        size = self.args.rollout_batch_size
        taken, self.ready = self.ready[:size], self.ready[size:]
        self.next_rollout = rollout_id + 1
        return sorted(taken, key=lambda started: started.number)

    def _waits_for(self, rollout_id: int) -> bool:
        size, bound = self.args.rollout_batch_size, self.args.max_staleness
        if len(self.ready) < size:
            return True
        if bound is None:
            return False
        due = [started.trained + bound for started in (*self.running.values(), *self.ready)]
        return missing(due, [started.trained + bound for started in self.ready], rollout_id, size) > 0

    def _check_stall(self, rollout_id: int) -> None:
        quiet, limit = time.monotonic() - self.last_finish, self.args.rollout_stall_timeout
        if quiet > limit:
            raise EngineError(
                f"rollout {rollout_id}: no group was finished for {limit:g} s (--rollout-stall-timeout); "
                f"{len(self.ready)} of {self.args.rollout_batch_size} are there and {len(self.running)} under way, "
                f"the weights are those after {self.clock.trained} rollouts (--max-staleness "
                f"{self.args.max_staleness})"
            )

    async def _produce(self) -> None:
        while True:
            await self._start_allowed()
            if not self.running:
                await asyncio.sleep(IDLE)
                continue
            done, _ = await asyncio.wait(self.running, timeout=IDLE, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=lambda task: self.running[task].number):
                self._take(self.running.pop(task), task.result())
            if self.group_filter.exhausted:
                self._use_reserve()

    async def _start_allowed(self) -> None:
        trained = await self.clock.look(self.next_rollout)
        while self._may_start(trained):
            groups = await asyncio.to_thread(self.source.get_samples, 1)
            if not groups:
                if not self.open:
                    raise DataError("the data source has no prompts")
                return
            for group in groups:
                self._start(Started(group, self.count, trained))
                self.count += 1

    def _may_start(self, trained: int) -> bool:
        size = self.args.rollout_batch_size
        assert self.args.over_sampling_batch_size is not None
        if len(self.running) >= max(size, self.args.over_sampling_batch_size):
            return False
        if self.args.max_staleness is None:
            return self.open < BATCHES_AHEAD * int(size)
        return may_start(self.open, trained, self.next_rollout, size, self.args.max_staleness)

    def _start(self, started: Started) -> None:
        runner = SampleRunner(self.args, self.next_rollout, self.state.sampling_params)
        self.running[asyncio.create_task(runner.run_group(started.group))] = started

    def _take(self, started: Started, group: Group) -> None:
        self.last_finish = time.monotonic()
        started.group = group
        verdict = self.group_filter.judge(group)
        if verdict is Verdict.ACCEPT:
            self.ready.append(started)
        elif verdict is Verdict.RETRY:
            started.group = to_retry(group, keep_partial=True)
            self._start(started)
        elif self.group_filter.reserve and self.group_filter.reserve[-1] is group:
            self._keep_in_reserve(started)
        else:
            discard(self.source, [group])

    def _keep_in_reserve(self, started: Started) -> None:
        """The newest, at most a batch of them."""
        self.group_filter.reserve.clear()
        self.reserve.append(started)
        while len(self.reserve) > self.args.rollout_batch_size:
            discard(self.source, [self.reserve.pop(0).group])

    def _use_reserve(self) -> None:
        """Trains on what a filter would rather not use, where nothing else came for too long."""
        bound = self.args.max_staleness
        young = [s for s in self.reserve if bound is None or s.trained + bound >= self.next_rollout]
        if not young:
            raise self.group_filter.error()
        discard(self.source, [s.group for s in self.reserve if all(s is not kept for kept in young)])
        self.ready += young
        self.reserve = []
        self.group_filter.in_a_row.clear()
