"""Completes a sample with answer and reward; errors become failed samples, not exceptions."""

from __future__ import annotations

import asyncio
import copy
import inspect
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, DataError, EngineError, EnvironmentAway, RewardError
from slime.hooks import load_hook, load_hooks, load_path
from slime.rollout.engine_pool import EngineRefused, Interrupt
from slime.rollout.generate import generate
from slime.rollout.rm_hub import async_rm, batched_async_rm
from slime.rollout.state import GenerateState, current_interrupt
from slime.types import ATTEMPTS, FAILURE, Group, Sample, SampleStatus, flatten, fresh, is_done

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide

logger = logging.getLogger(__name__)


class SampleRunner:
    """Generates samples for one rollout or evaluation.

    Args:
        sampling_params: in SGLang's names.
        interrupt: once it is set, nothing new begins.
        generate_path: a custom generate function; overrides `--custom-generate-function-path`.
    """

    def __init__(
        self,
        args: GenerationSide,
        rollout_id: int,
        sampling_params: dict[str, Any],
        *,
        interrupt: Interrupt | None = None,
        evaluation: bool = False,
        generate_path: str | None = None,
    ) -> None:
        self.args, self.rollout_id, self.evaluation = args, rollout_id, evaluation
        self.sampling_params = sampling_params
        self.interrupt = interrupt or Interrupt()
        self.state = GenerateState.of(args)
        self.generate_function = load_hook(args, "custom_generate_function_path") or generate
        if generate_path is not None:
            self.generate_function = load_path("custom_generate_function_path", generate_path)
        self.sample_hooks = load_hooks(args, "rollout_sample_hook_path")

    async def run_group(self, group: Group) -> list[Any]:
        """Runs all samples of a group concurrently; finished entries are unchanged."""
        entries = await asyncio.gather(*(self.run_sample(entry) for entry in group))
        samples = list(flatten(entries))
        if self.args.group_rm and all(map(is_done, samples)) and any(s.reward is None for s in samples):
            return await self._rewarded_group(list(group), entries, samples)
        return list(entries)

    async def run_sample(self, entry: object) -> Any:
        """Returns a sample with answer and reward, or a list if the generate function makes several.

        A failure returns the original sample with status FAILED and `metadata["failure"]`.

        Raises:
            ConfigError: flags are invalid, so every other sample would fail too.
        """
        if not isinstance(entry, Sample) or (is_done(entry) and entry.reward is not None):
            return entry
        before = fresh(entry)
        try:
            samples = entry if is_done(entry) else await self._generated(entry)
            if not self.args.group_rm or self.evaluation:
                await self._reward(samples)
            return samples
        except ConfigError:
            raise
        except TimeoutError as error:
            return failed(before, "timeout", error)
        except RewardError as error:
            return failed(before, "reward", error)
        except EngineRefused as error:
            return failed(before, "refused", error)
        except EngineError as error:
            return failed(before, "engine", error)
        except EnvironmentAway as error:
            return failed(before, "environment", error)
        except Exception as error:  # exceptions of users' functions and rewards are recorded in the sample
            logger.exception("generation, a hook or the reward failed for sample %s", before.index)
            return failed(before, type(error).__name__, error)

    async def _generated(self, sample: Sample) -> Any:
        async with self.state.semaphore:
            if self.interrupt.set:
                sample.status = SampleStatus.ABORTED
                return sample
            sample.metadata.setdefault("start_rollout_id", self.rollout_id)
            if self.args.mask_offpolicy_in_partial_rollout and sample.response_length:
                sample.loss_mask = [0] * sample.response_length
            current_interrupt.set(self.interrupt)
            samples = await self._call(sample)
        samples = samples if isinstance(samples, list) else [samples]
        complete_indices(sample, samples)
        for number, made in enumerate(samples):
            samples[number] = await self._hooked(made)
        return samples[0] if len(samples) == 1 else samples

    async def _call(self, sample: Sample) -> Any:
        function = self.generate_function
        if sample.generate_function_path is not None:
            function = load_path("custom_generate_function_path", sample.generate_function_path)
        options = (
            {"evaluation": self.evaluation} if "evaluation" in inspect.signature(function).parameters else {}
        )
        params = copy.deepcopy(self.sampling_params)
        async with asyncio.timeout(self.args.rollout_sample_timeout):
            answer = function(self.args, sample, params, **options)
            if not inspect.isawaitable(answer):
                raise ConfigError(f"the generate function {function.__name__} must be an async function")
            return await answer

    async def _hooked(self, sample: Sample) -> Sample:
        for hook in self.sample_hooks:
            result = hook(self.args, sample, rollout_id=self.rollout_id, evaluation=self.evaluation)
            result = await result if inspect.isawaitable(result) else result
            sample = sample if result is None else result
        sample.validate()
        if sample.status is SampleStatus.PENDING:
            raise DataError("the generate function left a sample with status PENDING")
        return sample

    async def _reward(self, value: object) -> None:
        samples = list(flatten([value]))
        if not all(map(is_done, samples)):
            return
        waiting = [sample for sample in samples if sample.reward is None]
        rewards = await asyncio.gather(
            *(async_rm(self.args, sample, evaluation=self.evaluation) for sample in waiting)
        )
        for sample, reward in zip(waiting, rewards, strict=True):
            sample.reward = reward

    async def _rewarded_group(
        self, before: list[Any], entries: Sequence[object], samples: list[Sample]
    ) -> list[Any]:
        try:
            rewards = await batched_async_rm(self.args, samples)
            for sample, reward in zip(samples, rewards, strict=True):
                sample.reward = reward
        except ConfigError:
            raise
        except Exception as error:  # as in run_sample
            return [failed(fresh(next(flatten([entry]))), "reward", error) for entry in before]
        return list(entries)


def failed(sample: Sample, reason: str, error: BaseException) -> Sample:
    """Returns `sample` marked as failed, with the beginning of the error message."""
    logger.warning("sample %s failed (%s): %s", sample.index, reason, error or type(error).__name__)
    sample.status = SampleStatus.FAILED
    sample.metadata[FAILURE] = {"reason": reason, "message": f"{type(error).__name__}: {error}"[:500]}
    return sample


def complete_indices(parent: Sample, made: Sequence[Sample]) -> None:
    """Assigns samples made by a generate function to the group of its input sample."""
    for sample in made:
        sample.group_index = parent.group_index if sample.group_index is None else sample.group_index
        sample.index = parent.index if sample.index is None else sample.index
        for name in (ATTEMPTS, "start_rollout_id"):
            if name in parent.metadata:
                sample.metadata.setdefault(name, parent.metadata[name])
