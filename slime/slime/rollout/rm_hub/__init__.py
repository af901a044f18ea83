"""Computes rewards of samples.

`--custom-rm-path` selects a custom function; otherwise `--rm-type`, or the sample's `metadata["rm_type"]`,
selects a built-in one. `boxed_NAME` passes the last boxed answer of the response to NAME instead of the
response.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError
from slime.rollout.rm_hub.answers import last_boxed
from slime.rollout.rm_hub.custom import accepted_keywords, arguments_of, load_custom_reward
from slime.rollout.rm_hub.guard import checked, guarded, user_threads
from slime.rollout.rm_hub.ifbench import ifbench_reward
from slime.rollout.rm_hub.mathematics import dapo_reward, deepscaler_reward, math_reward
from slime.rollout.rm_hub.remote import remote_reward
from slime.rollout.rm_hub.text import f1_reward, gpqa_reward
from slime.types import Sample

if TYPE_CHECKING:
    from slime.flags.data import DataArguments
    from slime.flags.reward import RewardArguments
    from slime.flags.sides import GenerationSide

__all__ = ["BOXED", "RM_TYPES", "async_rm", "batched_async_rm", "check_rm_type"]

BOXED = "boxed_"
RULES: dict[str, Callable[[Any, Sample], Any]] = {
    "math": lambda args, sample: math_reward(sample.response, sample.label),
    "deepscaler": lambda args, sample: deepscaler_reward(sample.response, sample.label),
    "dapo": lambda args, sample: dapo_reward(sample.response, sample.label),
    "f1": lambda args, sample: f1_reward(sample.response, sample.label),
    "gpqa": lambda args, sample: gpqa_reward(sample.response, sample.label, sample.metadata),
    "ifbench": lambda args, sample: ifbench_reward(sample.response, sample.metadata),
    "random": lambda args, sample: random_reward(args, sample),
}
RM_TYPES = (*RULES, "remote_rm")


async def async_rm(args: GenerationSide, sample: Sample, **keywords: object) -> float | dict[str, Any]:
    """Returns the reward of one sample.

    Raises:
        RewardError: it timed out, raised or is not finite; the message names the sample, and it was counted.
        ConfigError: the reward does not exist, or too many consecutive ones failed.
    """
    path = custom_path(args, sample)
    if path is not None:
        reward = load_custom_reward(args, path)
        accepted = {} if reward.kind == "model" else accepted_keywords(reward.function, keywords)
        runner = user_threads(args.rm_concurrency)
        value = await guarded(
            args,
            path,
            [sample],
            lambda: runner.run(reward.function, *arguments_of(reward, args, sample), **accepted),
        )
        one = value[0] if reward.kind == "samples" and isinstance(value, list | tuple) and value else value
        return checked(args, path, sample, one)
    kind = rm_type_of(args, sample)
    return checked(
        args, kind, sample, await guarded(args, kind, [sample], lambda: _built_in(args, kind, sample))
    )


async def batched_async_rm(
    args: GenerationSide, samples: Sequence[Sample], **keywords: object
) -> list[float | dict[str, Any]]:
    """Returns the rewards of several samples, in order.

    A custom function with a parameter `samples` gets all at once.

    Raises:
        RewardError: one of them failed, or the function returned another number of rewards.
        ConfigError: like `async_rm`.
    """
    samples = list(samples)
    paths = {custom_path(args, sample) for sample in samples}
    path = paths.pop() if len(paths) == 1 else None
    reward = load_custom_reward(args, path) if path is not None else None
    if path is None or reward is None or reward.kind != "samples":
        rewards = await asyncio.gather(
            *(async_rm(args, sample, **keywords) for sample in samples), return_exceptions=True
        )
        for one in rewards:
            if isinstance(one, BaseException):
                raise one
        return [one for one in rewards if not isinstance(one, BaseException)]
    function, accepted = reward.function, accepted_keywords(reward.function, keywords)
    runner = user_threads(args.rm_concurrency)
    values = await guarded(args, path, samples, lambda: runner.run(function, args, samples, **accepted))
    values = values.tolist() if hasattr(values, "tolist") else values
    if not isinstance(values, list | tuple) or len(values) != len(samples):
        await guarded(args, path, samples, lambda: _wrong_count(values, len(samples)))
    return [checked(args, path, sample, value) for sample, value in zip(samples, values, strict=True)]


async def _wrong_count(values: object, expected: int) -> None:
    count = len(values) if isinstance(values, list | tuple) else type(values).__name__
    raise ValueError(f"it must return a list of {expected} rewards, one per sample, but returned {count}")


def custom_path(args: RewardArguments, sample: Sample) -> str | None:
    """Returns `sample.custom_rm_path`, else --custom-rm-path."""
    path: str | None = sample.custom_rm_path or args.custom_rm_path
    return path


def rm_type_of(args: RewardArguments, sample: Sample) -> str:
    """Returns `metadata["rm_type"]`, else --rm-type.

    Raises:
        ConfigError: neither is set, or it does not exist.
    """
    kind = str(sample.metadata.get("rm_type") or args.rm_type or "").strip()
    if not kind:
        raise ConfigError(
            f"sample {sample.index!r} has no reward: set --rm-type, --custom-rm-path, or "
            "metadata.rm_type in the data"
        )
    check_rm_type(kind, args.rm_url)
    return kind


def check_rm_type(kind: str, url: str | None) -> None:
    """Raises ConfigError for an unknown reward, or for remote_rm without --rm-url."""
    name = kind.removeprefix(BOXED)
    if name not in RM_TYPES:
        raise ConfigError(f"unknown reward type {kind!r}; known: {', '.join(RM_TYPES)}, and {BOXED}NAME")
    if name == "remote_rm" and not url:
        raise ConfigError("--rm-type remote_rm needs --rm-url")


async def _built_in(args: GenerationSide, kind: str, sample: Sample) -> Any:
    if kind.startswith(BOXED):
        kind, sample = kind.removeprefix(BOXED), replace(sample, response=last_boxed(sample.response) or "")
    if kind == "remote_rm":
        return await remote_reward(args, sample)
    return await user_threads(args.rm_concurrency).run(RULES[kind], args, sample)


def random_reward(args: DataArguments, sample: Sample) -> float:
    """Returns 0.0 or 1.0 at random, reproducible for --rollout-seed, sample and response; for tests."""
    dice = random.Random(f"{args.rollout_seed} {sample.group_index} {sample.index} {sample.response}")
    return float(dice.randint(0, 1))
