"""Evaluation: samples answers to every prompt of every data set concurrently, and scores them."""

from __future__ import annotations

import asyncio
import copy
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, EngineError
from slime.rollout.dataset import Dataset, DatasetSpec, load_dataset
from slime.rollout.eval_datasets import EvalDataset, eval_datasets
from slime.rollout.event_loop import run
from slime.rollout.metrics import (
    attempt_rows,
    error_counts,
    length_metrics,
    pass_rates,
    ratio,
    repetition,
    solves,
    write_attempts,
)
from slime.rollout.sample_runner import SampleRunner
from slime.rollout.state import sampling_params
from slime.types import RolloutFnEvalOutput, Sample, SampleStatus, flatten, fresh, is_done, rewards_of

if TYPE_CHECKING:
    from slime.flags.sampling import SamplingArguments
    from slime.flags.sides import GenerationSide

_datasets: dict[str, Dataset] = {}
_lock = threading.Lock()


def evaluate(args: GenerationSide, rollout_id: int) -> RolloutFnEvalOutput:
    """Evaluates on `--eval-prompt-data` or the data sets of `--eval-config`.

    A failed sample is retried up to `--rollout-max-attempts` times; then it counts as wrong (reward 0) and in
    `error_cat`, so a data set always has the same number of samples.

    Raises:
        ConfigError: there is no evaluation data set.
        EngineError: all samples of a data set failed.
    """
    datasets = eval_datasets(args)
    if not datasets:
        raise ConfigError("no evaluation data set: set --eval-prompt-data NAME FILE, or --eval-config")
    return run(_evaluate_all(args, rollout_id, datasets), args.rollout_stall_timeout)


async def _evaluate_all(
    args: GenerationSide, rollout_id: int, datasets: Sequence[EvalDataset]
) -> RolloutFnEvalOutput:
    began = time.monotonic()
    results = await asyncio.gather(*(_evaluate(args, rollout_id, dataset) for dataset in datasets))
    data = {dataset.name: result for dataset, result in zip(datasets, results, strict=True)}
    metrics: dict[str, float] = {"perf/eval_time": time.monotonic() - began}
    for dataset in datasets:
        metrics |= eval_metrics(dataset, data[dataset.name])
    rows: list[dict[str, Any]] = []
    for dataset in datasets:
        result, attempts = data[dataset.name], dataset.n_samples_per_eval_prompt
        rows += attempt_rows(rollout_id, dataset.name, attempts, result["samples"], result["rewards"])
    await asyncio.to_thread(write_attempts, args.run_dir, rows)
    return RolloutFnEvalOutput(data=data, metrics=metrics)


async def _evaluate(args: GenerationSide, rollout_id: int, dataset: EvalDataset) -> dict[str, Any]:
    prompts = await asyncio.to_thread(_loaded, dataset.spec(args))
    as_here = copy.copy(args)  # generate functions read the context limit from args
    as_here.rollout_max_context_len = dataset.max_context_len
    runner = SampleRunner(
        as_here,
        rollout_id,
        dataset.sampling_params(sampling_params(args)),
        evaluation=True,
        generate_path=dataset.custom_generate_function_path,
    )
    groups = eval_samples(dataset, prompts)
    answered = await asyncio.gather(*(_answered(args, runner, sample) for sample in flatten(groups)))
    samples = [list(flatten([entry]))[-1] for entry in answered]
    if not any(map(is_done, samples)):
        message = samples[0].metadata.get("failure", {}).get("message", "unknown reason")
        raise EngineError(
            f"evaluation {dataset.name}: all {len(samples)} samples failed; first error: {message}"
        )
    scores = [
        (rewards_of([sample], dataset.reward_key) or [0.0])[0] if is_done(sample) else 0.0
        for sample in samples
    ]
    return {
        "rewards": scores,
        "truncated": [sample.status is SampleStatus.TRUNCATED for sample in samples],
        "samples": samples,
        "prompts_too_long": prompts.too_long,
    }


async def _answered(args: SamplingArguments, runner: SampleRunner, sample: Sample) -> Any:
    entry = await runner.run_sample(sample)
    for _ in range(args.rollout_max_attempts - 1):
        if all(map(is_done, flatten([entry]))):
            break
        entry = await runner.run_sample(fresh(next(flatten([entry]))))
    return entry


def _loaded(spec: DatasetSpec) -> Dataset:
    """Returns the data set, loaded once per process."""
    with _lock:
        if repr(spec) not in _datasets:
            _datasets[repr(spec)] = load_dataset(spec)
        return _datasets[repr(spec)]


def eval_samples(dataset: EvalDataset, prompts: Dataset) -> list[list[Sample]]:
    """Returns `n_samples_per_eval_prompt` samples per prompt, with the same indices in every evaluation."""
    count = dataset.n_samples_per_eval_prompt
    overrides = {"rm_type": dataset.rm_type} if dataset.rm_type else {}
    return [
        [
            Sample(
                group_index=f"{dataset.name}/{number}",
                index=f"{dataset.name}/{number}/{copy_number}",
                prompt=copy.deepcopy(prompt.prompt),
                label=copy.deepcopy(prompt.label),
                metadata=copy.deepcopy({**prompt.metadata, **dataset.metadata_overrides, **overrides}),
            )
            for copy_number in range(count)
        ]
        for number, prompt in enumerate(prompts.prompts)
    ]


def eval_metrics(dataset: EvalDataset, result: dict[str, Any]) -> dict[str, float]:
    """Returns `eval/NAME` (mean score), and further metrics under `eval/NAME/`, including pass@k."""
    name, samples, scores = f"eval/{dataset.name}", result["samples"], result["rewards"]
    metrics = {name: sum(scores) / len(scores), f"{name}/prompts_too_long": float(result["prompts_too_long"])}
    metrics |= length_metrics(f"{name}/response_len", samples)
    metrics[f"{name}/truncated_ratio"] = ratio(result["truncated"])
    metrics[f"{name}/aborted_ratio"] = ratio(s.status is SampleStatus.ABORTED for s in samples)
    metrics[f"{name}/repetition_frac"] = ratio(map(repetition, samples))
    metrics |= error_counts(f"{name}/error_cat", samples)
    solved = [float(solves(sample, score)) for sample, score in zip(samples, scores, strict=True)]
    return metrics | {
        f"{name}/pass@{k}": value
        for k, value in pass_rates(solved, dataset.n_samples_per_eval_prompt).items()
    }
