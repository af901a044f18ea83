"""Sources of prompt groups, with a state that survives restarts."""

from __future__ import annotations

import abc
import copy
import random
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from slime.errors import ConfigError, DataError
from slime.hooks import load_hook
from slime.rollout import data_state
from slime.rollout.data_state import InFlightGroups, read_groups, written_groups
from slime.rollout.dataset import load_dataset, training_spec
from slime.types import Group, Sample

if TYPE_CHECKING:
    from slime.flags.sides import GenerationSide


class DataSource(abc.ABC):
    """Returns groups of `--n-samples-per-prompt` samples; `--data-source-path` selects such a class.

    Methods are called from several threads.
    """

    def __init__(self, args: GenerationSide) -> None:
        self.args = args

    @abc.abstractmethod
    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        """Returns the next `num_samples` groups."""

    @abc.abstractmethod
    def add_samples(self, samples: Sequence[Group]) -> None:
        """Puts groups back; they are returned before others."""

    def state_dict(self, rollout_id: int) -> dict[str, Any]:
        """Returns the state for continuing after rollout `rollout_id` with `load_state_dict`, as JSON data;
        default: empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restores `state`."""

    def discard_samples(self, samples: Sequence[Group]) -> None:  # noqa: B027
        """Called with groups that are permanently dropped."""

    def settle(self, rollout_id: int, samples: Sequence[Group]) -> None:  # noqa: B027
        """Called with the groups in the batch of rollout `rollout_id`."""

    def metrics(self) -> dict[str, float]:
        """Returns metrics of this source for a rollout's log."""
        return {}

    def save(self, rollout_id: int) -> None:
        """Writes the state after `rollout_id` atomically."""
        data_state.write(self.args.save, rollout_id, self.state_dict(rollout_id))

    def load(self, rollout_id: int) -> bool:
        """Continues after rollout `rollout_id` (-1: no-op); returns whether its state was found.

        If not, the newest earlier state is used with a warning, so some prompts are repeated.
        """
        if rollout_id < 0:
            return True
        saved = data_state.newest(self.args.save, self.args.load, rollout_id)
        if saved is None:
            return False
        saved_after, state = saved
        self.load_state_dict(state)
        return saved_after == rollout_id


class RolloutDataSource(DataSource):
    """Groups from `--prompt-data`, epoch after epoch; returned groups come first.

    The order in an epoch depends only on `--rollout-seed` and the epoch number. Group and sample indices
    increase over the whole run, including restarts.

    Raises:
        ConfigError, DataError: see `load_dataset`.
    """

    def __init__(self, args: GenerationSide) -> None:
        super().__init__(args)
        if args.prompt_data is None:
            raise ConfigError(f"{type(self).__name__} needs --prompt-data")
        self.dataset = load_dataset(training_spec(args))
        self.epoch = self.offset = self.group_index = self.sample_index = 0
        self.order = self._order_of(0)
        self.buffer: list[list[Any]] = []
        self.in_flight = InFlightGroups()
        self.lock = threading.RLock()

    def __len__(self) -> int:
        """Returns the number of prompts in an epoch."""
        return len(self.dataset)

    def rollouts_per_epoch(self) -> int:
        """Returns the number of full batches per epoch. Raises ConfigError if there are too few prompts for
        one batch."""
        count: int = len(self) // self.args.rollout_batch_size
        if not count:
            raise ConfigError(
                f"{self.args.prompt_data} has {len(self)} prompts, less than --rollout-batch-size "
                f"{self.args.rollout_batch_size}"
            )
        return count

    def get_samples(self, num_samples: int) -> list[list[Sample]]:
        with self.lock:
            groups: list[list[Any]] = self._from_buffer(num_samples)
            while len(groups) < num_samples:
                groups.append(self._next_group())
            self.in_flight.hand_out(groups)
            return groups

    def add_samples(self, samples: Sequence[Group]) -> None:
        for group in samples:
            if len(group) != self.args.n_samples_per_prompt:
                raise DataError(
                    f"a returned group must have --n-samples-per-prompt {self.args.n_samples_per_prompt} "
                    f"samples, got {len(group)}"
                )
        with self.lock:
            self.in_flight.forget(samples)
            self.buffer += [list(group) for group in samples]

    def discard_samples(self, samples: Sequence[Group]) -> None:
        with self.lock:
            self.in_flight.forget(samples)

    def settle(self, rollout_id: int, samples: Sequence[Group]) -> None:
        with self.lock:
            self.in_flight.settle(rollout_id, samples)

    def metrics(self) -> dict[str, float]:
        with self.lock:
            return {
                "rollout/data/epoch": self.epoch + self.offset / len(self),
                "rollout/data/buffered_groups": len(self.buffer),
                "rollout/data/prompts_too_long": self.dataset.too_long,
            }

    def state_dict(self, rollout_id: int) -> dict[str, Any]:
        """Returns the position, and the groups that are buffered or in use for a later rollout, in their
        original form."""
        with self.lock:
            waiting = self.in_flight.outstanding_after(rollout_id)
            return {
                "prompts": len(self),
                "epoch": self.epoch,
                "offset": self.offset,
                "group_index": self.group_index,
                "sample_index": self.sample_index,
                "buffer": written_groups([*waiting, *self.buffer]),
            }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores a state. Raises DataError if the prompts have changed since."""
        if state["prompts"] != len(self):
            raise DataError(
                f"{self.args.prompt_data} has {len(self)} usable prompts, but had "
                f"{state['prompts']} when the state was saved; resume with the same file, slice "
                "and length limit"
            )
        with self.lock:
            self.epoch, self.offset = state["epoch"], state["offset"]
            self.group_index, self.sample_index = state["group_index"], state["sample_index"]
            self.order = self._order_of(self.epoch)
            self.buffer = read_groups(state["buffer"])
            self.in_flight = InFlightGroups()

    def _from_buffer(self, count: int) -> list[list[Any]]:
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def _next_group(self) -> list[Sample]:
        if self.offset >= len(self):
            self.epoch, self.offset = self.epoch + 1, 0
            self.order = self._order_of(self.epoch)
        prompt = self.dataset.prompts[self.order[self.offset]]
        self.offset += 1
        group = [
            Sample(
                group_index=self.group_index,
                index=self.sample_index + number,
                prompt=copy.deepcopy(prompt.prompt),
                label=copy.deepcopy(prompt.label),
                metadata=copy.deepcopy(prompt.metadata),
            )
            for number in range(self.args.n_samples_per_prompt)
        ]
        self.group_index += 1
        self.sample_index += len(group)
        return group

    def _order_of(self, epoch: int) -> list[int]:
        order = list(range(len(self)))
        if self.args.rollout_shuffle:
            random.Random(self.args.rollout_seed + epoch).shuffle(order)
        return order


class RolloutDataSourceWithBuffer(RolloutDataSource):
    """The default source. `--buffer-filter-path` selects the buffered groups to reuse."""

    def __init__(self, args: GenerationSide) -> None:
        super().__init__(args)
        self.buffer_filter = load_hook(args, "buffer_filter_path")

    def _from_buffer(self, count: int) -> list[list[Any]]:
        if self.buffer_filter is None or not self.buffer:
            return super()._from_buffer(count)
        before = len(self.buffer)
        taken: list[list[Any]] = self.buffer_filter(self.args, None, self.buffer, count)
        if len(taken) > count or len(self.buffer) + len(taken) > before:
            raise DataError(
                f"--buffer-filter-path {self.args.buffer_filter_path} must remove at most {count} "
                f"groups from the buffer and return them; it returned {len(taken)}, and the "
                f"buffer went from {before} to {len(self.buffer)}"
            )
        return taken
