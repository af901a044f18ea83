"""Fully asynchronous rollouts: `--rollout-function-path slime.rollout.fully_async_rollout.generate_rollout_fully_async`.

Generation goes on while the trainer trains and while weights are updated. `--max-staleness` bounds by how many
rollouts the weights that began a group may be behind; groups wait for their turn to start and are never thrown
away for their age.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from slime.hooks import load_hook
from slime.rollout.evaluation import evaluate
from slime.rollout.event_loop import run
from slime.rollout.fully_async import Producer
from slime.types import RolloutFnEvalOutput, RolloutFnTrainOutput

if TYPE_CHECKING:
    from slime.arguments.sides import GenerationSide
    from slime.rollout.data_source import DataSource

_producers: dict[int, Producer] = {}


def generate_rollout_fully_async(
    args: GenerationSide, rollout_id: int, data_source: DataSource, evaluation: bool = False
) -> RolloutFnTrainOutput | RolloutFnEvalOutput:
    """One batch of `--rollout-batch-size` groups; the next ones are under way when it returns.

    Raises:
        As `slime.rollout.sglang_rollout.generate_rollout`.
    """
    if evaluation:
        return evaluate(args, rollout_id)
    return run(_batch(args, rollout_id, data_source), args.rollout_stall_timeout)


generate_rollout = generate_rollout_fully_async


async def _batch(args: GenerationSide, rollout_id: int, source: DataSource) -> RolloutFnTrainOutput:
    producer = _producers.get(id(source))  # it holds the source, so that the id stays the source's
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
