"""Rollouts in files: written by one run, trained on by another. They are plain JSON, so reading them runs no code."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.files import write_bytes
from slime.errors import ConfigError, DataError
from slime.types import RolloutFnTrainOutput, Sample

if TYPE_CHECKING:
    from slime.flags.run import LoopArguments


def path_of(pattern: str, rollout_id: int, evaluation: bool = False) -> Path:
    """Returns the file of a rollout; for an evaluation, with `eval_` before its number."""
    return Path(pattern.replace("{rollout_id}", f"eval_{rollout_id}" if evaluation else str(rollout_id)))


def save(pattern: str, rollout_id: int, samples: list[Sample], evaluation: bool = False) -> Path:
    """Writes the samples of a rollout atomically.

    Raises:
        DataError: a sample contains values that JSON cannot represent.
    """
    path = path_of(pattern, rollout_id, evaluation)
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        text = json.dumps({"rollout_id": rollout_id, "samples": [sample.to_dict() for sample in samples]})
    except TypeError as error:
        raise DataError(f"the samples of rollout {rollout_id} cannot be written as JSON: {error}") from error
    data = text.encode()
    write_bytes(path, gzip.compress(data, 5) if path.suffix == ".gz" else data)
    return path


def load(pattern: str, rollout_id: int, share: float = 1.0) -> list[Sample]:
    """Returns the samples of a rollout; of a `share` below 1 half from the file's head, half from its tail.

    Raises:
        ConfigError: the file is not there.
        DataError: it is not a file of samples.
    """
    path = path_of(pattern, rollout_id)
    try:
        data = path.read_bytes()
        content = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        samples = [Sample.from_dict(sample) for sample in content["samples"]]
    except FileNotFoundError as error:
        raise ConfigError(
            f"rollout {rollout_id} is to be replayed from {path}, which is not there; set --num-rollout to the "
            "number of files"
        ) from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} contains no samples of a rollout: {error!r}") from error
    count = max(1, round(len(samples) * share))
    head = count - count // 2
    return samples if count >= len(samples) else samples[:head] + samples[len(samples) - count // 2 :]


def replay(
    args: LoopArguments, rollout_id: int, data_source: object = None, evaluation: bool = False
) -> RolloutFnTrainOutput:
    """The rollout function of `--load-debug-rollout-data`."""
    assert args.load_debug_rollout_data is not None
    samples = load(args.load_debug_rollout_data, rollout_id, args.load_debug_rollout_data_subsample)
    return RolloutFnTrainOutput(samples=[samples])
