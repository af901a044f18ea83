"""Fully asynchronous rollouts: `--rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async`.

Generation continues while the trainer trains and while weights are updated. `--max-staleness` bounds by how many
rollouts the weights that started a group may be outdated; groups wait before they start, and are never dropped for
their age.

Bounded staleness (`may_start`, `missing`): every group that is started is trained on (unless a filter drops it):
dropping slow groups for their age would teach the model on short answers only. With a bound of s, a group that starts
when n rollouts are trained must be in the batch of rollout n + s or earlier. Two rules make that possible:

* A group starts only while fewer than (n + s + 1 - r) * B groups are started and not handed out, where r is the next
  rollout to hand out and B the groups of a batch: all of them fit into the batches up to rollout n + s.
* A batch takes the groups that are due first, and waits for one that is under way if leaving it out would push more
  groups into the batches up to some rollout than these hold.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slime.errors import DataError, EngineError
from slime.hooks import load_hook
from slime.rollout.engine_pool import EngineAway, EnginePool
from slime.rollout.evaluation import evaluate
from slime.rollout.event_loop import run
from slime.rollout.group_filter import GroupFilter, Verdict
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.sglang_rollout import discard
from slime.rollout.state import GenerateState
from slime.types import Group, RolloutFnEvalOutput, RolloutFnTrainOutput, to_retry
from slime.weights.versions import read_live

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide
    from slime.rollout.data_source import DataSource

logger = logging.getLogger(__name__)

_producers: dict[int, Producer] = {}
IDLE = 0.05  # seconds between checks whether more groups may start
BATCHES_AHEAD = 2  # without --max-staleness: maximum started and undelivered groups, in batches
LOOK_EVERY = 0.2  # seconds


def generate_rollout_fully_async(
    args: GenerationSide, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """Returns a batch of `--rollout-batch-size` groups; the next ones are already being generated.

    Raises:
        As `slime.rollout.sglang_rollout.generate_rollout`.
    """
    if evaluation:
        return evaluate(args, rollout_id)
    return run(_batch(args, rollout_id, data_source), args.rollout_stall_timeout)


generate_rollout = generate_rollout_fully_async


async def _batch(args: GenerationSide, rollout_id: int, source: DataSource) -> RolloutFnTrainOutput:
    producer = _producers.get(id(source))  # it keeps the source alive, so that the id is not reused
    if producer is None or producer.work.done():
        producer = _producers[id(source)] = Producer(args, source, rollout_id)
    taken = await producer.batch(rollout_id)
    batch = [started.group for started in taken]
    if (sample_filter := load_hook(args, "rollout_sample_filter_path")) is not None:
        await asyncio.to_thread(sample_filter, args, batch)
    if (process := load_hook(args, "rollout_all_samples_process_path")) is not None:
        seen, producer.group_filter.seen = producer.group_filter.seen, []
        await asyncio.to_thread(process, args, seen, source.get_samples)
    ages = [rollout_id - started.trained for started in taken]
    return RolloutFnTrainOutput(
        samples=[list(group) for group in batch],
        metrics=producer.group_filter.metrics()
        | {
            "rollout/staleness/rollouts_mean": sum(ages) / len(ages),
            "rollout/staleness/rollouts_max": max(ages),
            "rollout/open_groups": producer.open,
            "rollout/request_retries": producer.state.pool.take_retries(),
        },
    )


@dataclass
class Started:
    """A group in progress or finished. `trained`: number of trained rollouts of the weights that began it."""

    group: Group
    number: int
    trained: int


class Producer:
    """Keeps groups in progress for one data source; runs on the rollout event loop.

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
        """Returns the number of groups that are started and not delivered."""
        return len(self.running) + len(self.ready)

    async def batch(self, rollout_id: int) -> list[Started]:
        """Waits for the batch of `rollout_id`, removes it and returns it, oldest due first; more groups may
        start then.

        Raises:
            DataError: no prompts, or too many consecutive groups were dropped.
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
                f"rollout {rollout_id}: no group was finished for {limit:g} s "
                f"(--rollout-stall-timeout); {len(self.ready)} of {self.args.rollout_batch_size} "
                f"are finished and {len(self.running)} running; the weights are of "
                f"{self.clock.trained} trained rollouts (--max-staleness "
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
        """Keeps the newest dropped groups in reserve, at most one batch."""
        self.group_filter.reserve.clear()
        self.reserve.append(started)
        while len(self.reserve) > self.args.rollout_batch_size:
            discard(self.source, [self.reserve.pop(0).group])

    def _use_reserve(self) -> None:
        """Uses reserve groups if too many consecutive groups were dropped."""
        bound = self.args.max_staleness
        young = [s for s in self.reserve if bound is None or s.trained + bound >= self.next_rollout]
        if not young:
            raise self.group_filter.error()
        discard(self.source, [s.group for s in self.reserve if all(s is not kept for kept in young)])
        self.ready += young
        self.reserve = []
        self.group_filter.in_a_row.clear()


class PolicyClock:
    """Counts trained rollouts by `live_weights.json` in the run folder, once every engine serves that
    version.

    A group that starts when the clock is at `n` is thus sampled by weights after at least `n` rollouts.
    Without recorded weights, such as without training, the clock is at the requested rollout.
    """

    def __init__(self, run_dir: str, pool: EnginePool) -> None:
        self.run_dir, self.pool = Path(run_dir), pool
        self.trained: int | None = None
        self._version: int | None = None
        self._next_look = 0.0

    async def look(self, asked: int) -> int:
        """Returns the number of trained rollouts; `asked` is the requested rollout."""
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_EVERY
            await self._refresh()
        return asked if self.trained is None else self.trained

    async def _refresh(self) -> None:
        live = await asyncio.to_thread(read_live, self.run_dir)
        if live is None or live.rollout_id is None or live.version == self._version:
            return
        try:
            serving = await self.pool.versions()
        except EngineAway:
            return  # the pool's requests report it; until then the clock does not advance
        if serving and min(serving) >= live.version:
            self._version, self.trained = live.version, live.rollout_id + 1


def may_start(started: int, trained: int, next_rollout: int, batch: int, staleness: int) -> bool:
    """Returns whether another group may start while `started` groups are neither delivered nor dropped."""
    return started < (trained + staleness + 1 - next_rollout) * batch


def missing(due: Iterable[int], due_finished: Iterable[int], rollout: int, batch: int) -> int:
    """Returns the number of running groups that the batch of `rollout` must wait for; 0 if it may be
    delivered.

    Args:
        due: latest rollout of each started group, finished or not.
        due_finished: latest rollout of each finished group.
    """
    all_by, done_by = Counter(due), Counter(due_finished)
    total = finished = wait = 0
    for latest in sorted(all_by):
        total, finished = total + all_by[latest], finished + done_by[latest]
        room_later = max(latest - rollout, 0) * batch
        must_go = min(max(total - room_later, 0), batch)
        wait = max(wait, must_go - finished)
    return wait
