"""State of a data source: one JSON file per rollout, stored with the checkpoints; and the groups in flight.

Groups in flight were given to a rollout and are neither trained on, dropped nor returned yet.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from slime.errors import DataError
from slime.types import Group, Sample, group_id

logger = logging.getLogger(__name__)

STATE_NAME = "global_dataset_state_dict_{}.json"
STATE_NUMBER = re.compile(r"global_dataset_state_dict_(\d+)\.json")
ROLLOUTS_IN_FLIGHT = 4
"""Number of later rollouts that may start before a batch is saved; loops are one ahead."""


def write(save: str, rollout_id: int, state: dict[str, Any]) -> None:
    """Writes the state after `rollout_id` atomically.

    Raises:
        DataError: it contains values that JSON cannot represent.
    """
    path = state_path(save, rollout_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = json.dumps(state)
    except TypeError as error:
        raise DataError(
            f"cannot save the buffer: {error}; use only JSON data in label and metadata"
        ) from error
    write_text(path, text)


def newest(save: str, load: str | None, rollout_id: int) -> tuple[int, dict[str, Any]] | None:
    """Returns the newest state up to `rollout_id`, and its rollout. Logs a warning unless it is of
    `rollout_id`.

    Args:
        load: another folder with states, or a checkpoint in one.
    """
    roots = [save, *([load, str(Path(load).parent)] if load else [])]
    for root in sorted(roots, key=lambda root: not state_path(root, rollout_id).is_file()):
        known = [number for number in saved_states(Path(root) / "rollout") if number <= rollout_id]
        if known:
            if known[-1] < rollout_id:
                logger.warning(
                    "data state of rollout %d not found; continuing after %d", rollout_id, known[-1]
                )
            return known[-1], json.loads(state_path(root, known[-1]).read_text(encoding="utf-8"))
    logger.warning(
        "data state of rollout %d not found in %s; starting from the first prompt", rollout_id, save
    )
    return None


def state_path(save: str, rollout_id: int) -> Path:
    return Path(save) / "rollout" / STATE_NAME.format(rollout_id)


def saved_states(folder: Path) -> list[int]:
    """Returns the rollout ids of the states in a folder, sorted."""
    names = (STATE_NUMBER.fullmatch(path.name) for path in folder.glob("*.json"))
    return sorted(int(match[1]) for match in names if match)


class InFlightGroups:
    """Copies of the groups in flight, in their original form and order. Not thread-safe."""

    def __init__(self) -> None:
        self.out: dict[int | str, list[Any]] = {}
        self.batch_of: dict[int | str, int] = {}

    def hand_out(self, groups: Sequence[Group]) -> None:
        for group in groups:
            self.out[group_id(group)] = copy.deepcopy(list(group))

    def forget(self, groups: Sequence[Group]) -> None:
        for group in groups:
            index = group_id(group)
            self.out.pop(index, None)
            self.batch_of.pop(index, None)

    def settle(self, rollout_id: int, groups: Sequence[Group]) -> None:
        """Records the groups in the batch of a rollout; forgets copies of much earlier ones."""
        for group in groups:
            index = group_id(group)
            if index in self.out:
                self.batch_of[index] = rollout_id
        for index, number in list(self.batch_of.items()):
            if number <= rollout_id - ROLLOUTS_IN_FLIGHT:
                del self.batch_of[index], self.out[index]

    def outstanding_after(self, rollout_id: int) -> list[list[Any]]:
        """Returns the groups that a run resumed after `rollout_id` must get again."""
        return [
            group
            for index, group in self.out.items()
            if self.batch_of.get(index, rollout_id + 1) > rollout_id
        ]


def written_groups(groups: Sequence[Group]) -> list[Any]:
    """Returns groups as JSON data."""
    return [_written(group) for group in groups]


def _written(entry: Any) -> Any:
    return entry.to_dict() if isinstance(entry, Sample) else [_written(part) for part in entry]


def read_groups(written: Sequence[Any]) -> list[list[Any]]:
    """Returns the groups from JSON data."""
    return [[_read(part) for part in group] for group in written]


def _read(entry: Any) -> Any:
    return Sample.from_dict(entry) if isinstance(entry, dict) else [_read(part) for part in entry]
