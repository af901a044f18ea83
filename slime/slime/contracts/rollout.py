"""Inputs and required results of rollout hooks in a contract test."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from slime.contracts.examples import example_group, example_groups
from slime.errors import ConfigError
from slime.processes.servers import ServerSpec
from slime.rollout.post_process import samples_of, set_rewards
from slime.rollout.rm_hub import async_rm, batched_async_rm
from slime.types import Sample, flatten

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.model import ModelArguments


def _custom_rm(args: Arguments, function: Callable[..., object], path: str) -> None:
    async def ask() -> None:
        group = example_group(rewarded=False)
        await async_rm(args, group[0])
        await batched_async_rm(args, group)

    asyncio.run(ask())


def _dynamic_filter(args: Arguments, function: Callable[..., object], path: str) -> None:
    for group in example_groups():
        kept = function(args, group)
        kept = getattr(kept, "keep", kept)
        _expect(isinstance(kept, bool), f"returned {kept!r}; it must be a bool, or have a bool as .keep")


def _buffer_filter(args: Arguments, function: Callable[..., Any], path: str) -> None:
    buffer = [example_group(number) for number in range(3)]
    before = {id(group) for group in buffer}
    taken = function(args, None, buffer, 2)
    _expect(isinstance(taken, list) and len(taken) <= 2, "must return a list of at most num_samples groups")
    _expect(all(id(group) in before for group in taken), "returned a group that was not in the buffer")
    rest = {id(group) for group in buffer}
    _expect(not any(id(group) in rest for group in taken), "left a group in the buffer that it returned")


def _sample_filter(args: Arguments, function: Callable[..., object], path: str) -> None:
    groups = example_groups()
    _expect(function(args, groups) is None, "must return nothing; it sets sample.remove_sample")
    _still_samples(groups)


def _all_samples(args: Arguments, function: Callable[..., object], path: str) -> None:
    groups = example_groups()
    function(args, groups, lambda count: [example_group(9 + number) for number in range(count)])
    _still_samples(groups)


def _sample_hook(args: Arguments, function: Callable[..., object], path: str) -> None:
    async def ask() -> Any:
        result = function(args, example_group()[0], rollout_id=0, evaluation=False)
        return await result if inspect.isawaitable(result) else result

    hook_result = asyncio.run(ask())
    _expect(
        hook_result is None or isinstance(hook_result, Sample),
        f"returned a {type(hook_result).__name__}; it must be a Sample or None",
    )
    if hook_result is not None:
        hook_result.validate()


def _data_source(args: ModelArguments, function: Callable[..., Any], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        args.save = args.save or folder
        source = function(args)
        for name in ("get_samples", "add_samples", "save", "load"):
            _expect(callable(getattr(source, name, None)), f"made a {type(source).__name__} without {name}")
        groups = source.get_samples(2)
        _expect(
            isinstance(groups, list) and len(groups) == 2, "get_samples(2) must return a list of two groups"
        )
        _still_samples(groups)
        source.add_samples(groups)
        source.save(0)
        source.load(0)
        _expect(len(source.get_samples(1)) == 1, "get_samples(1) after load must return one group")


def _reward_post_process(args: Arguments, function: Callable[..., object], path: str) -> None:
    samples = list(flatten(example_groups()))
    set_rewards(samples, function(args, samples), path)


def _convert(args: Arguments, function: Callable[..., object], path: str) -> None:
    samples = list(flatten(example_groups()))
    made = samples_of(function(args, samples), path)
    _expect(bool(made), "returned no samples")


def _rollout_log(args: Arguments, function: Callable[..., object], path: str) -> None:
    _truth(function(0, args, list(flatten(example_groups())), {"rollout/extra": 1.0}, 2.5))


def _eval_log(args: Arguments, function: Callable[..., object], path: str) -> None:
    group = example_group()
    data = {"sums": {"rewards": [1.0, 0.0, 0.0], "truncated": [False] * 3, "samples": group}}
    _truth(function(0, args, data, {"eval/extra": 1.0}))


def _post_write(args: Arguments, function: Callable[..., object], path: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        function(args, folder, [])


def _service(args: Arguments, function: Callable[..., Any], path: str) -> None:
    services = function(args, {"policy": ["http://127.0.0.1:1"], "judge": []})
    _expect(isinstance(services, list), f"returned a {type(services).__name__}; it must be a list")
    for service in services:
        ServerSpec(**service)


def _truth(value: object) -> None:
    _expect(value is None or isinstance(value, bool), f"returned {value!r}; it must be a bool")


def _still_samples(groups: Sequence[object]) -> None:
    samples = list(flatten(groups))
    _expect(
        bool(samples) and all(isinstance(sample, Sample) for sample in samples), "groups must hold samples"
    )
    for sample in samples:
        sample.validate()


def _expect(kept: bool, message: str) -> None:
    if not kept:
        raise ConfigError(message)


TRIALS: dict[str, Callable[[Any, Any, str], None]] = {
    "custom_rm_path": _custom_rm,
    "dynamic_sampling_filter_path": _dynamic_filter,
    "buffer_filter_path": _buffer_filter,
    "rollout_sample_filter_path": _sample_filter,
    "rollout_all_samples_process_path": _all_samples,
    "rollout_sample_hook_path": _sample_hook,
    "data_source_path": _data_source,
    "custom_reward_post_process_path": _reward_post_process,
    "custom_convert_samples_to_train_data_path": _convert,
    "custom_rollout_log_function_path": _rollout_log,
    "custom_eval_rollout_log_function_path": _eval_log,
    "custom_update_weight_post_write_path": _post_write,
    "service_path": _service,
}
