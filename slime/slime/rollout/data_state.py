"""Files with the state of a data source: one a rollout, beside the checkpoints, plain JSON."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from slime.errors import DataError

logger = logging.getLogger(__name__)

STATE_NAME = "global_dataset_state_dict_{}.json"
STATE_NUMBER = re.compile(r"global_dataset_state_dict_(\d+)\.json")


def write(save: str, rollout_id: int, state: dict[str, Any]) -> None:
    """Writes the state after `rollout_id`, whole or not at all.

    Raises:
        DataError: it holds what JSON cannot.
    """
    path = state_path(save, rollout_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = json.dumps(state)
    except TypeError as error:
        raise DataError(
            f"the buffer cannot be saved: {error}; keep plain data in label and metadata"
        ) from error
    write_text(path, text)


def newest(save: str, load: str | None, rollout_id: int) -> tuple[int, dict[str, Any]] | None:
    """The newest state not after `rollout_id`, and after which rollout it was saved; a warning says where that is an
    earlier one, or none.

    Args:
        load: another folder with states, or a checkpoint in one.
    """
    roots = [save, *([load, str(Path(load).parent)] if load else [])]
    for root in sorted(roots, key=lambda root: not state_path(root, rollout_id).is_file()):
        known = [number for number in saved_states(Path(root) / "rollout") if number <= rollout_id]
        if known:
            if known[-1] < rollout_id:
                logger.warning("no data state of rollout %d; going on after %d", rollout_id, known[-1])
            return known[-1], json.loads(state_path(root, known[-1]).read_text(encoding="utf-8"))
    logger.warning("no data state of rollout %d under %s; prompts start from the first", rollout_id, save)
    return None


def state_path(save: str, rollout_id: int) -> Path:
    return Path(save) / "rollout" / STATE_NAME.format(rollout_id)


def saved_states(folder: Path) -> list[int]:
    """Rollout ids of the states in a folder, in order."""
    names = (STATE_NUMBER.fullmatch(path.name) for path in folder.glob("*.json"))
    return sorted(int(found[1]) for found in names if found)
