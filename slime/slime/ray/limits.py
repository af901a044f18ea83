"""Default time limits of a run's stages: fixed, or proportional to the model's size on a slow disk.

Checkpoints of large models have hundreds of gigabytes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.sides import ServingSide

UPDATE = 300.0
"""Seconds for one stage of a weight update; larger models get more."""
CHECKPOINT = 1800.0
"""Seconds for writing or loading a checkpoint; larger models get more."""
SLOW_DISK = 100e6
"""Assumed speed of a network disk in bytes per second."""
STATE = 7
"""Size of a full-training checkpoint relative to the model in bfloat16: the model, plus weights and two
moments in fp32."""


def model_bytes(folder: str) -> int:
    """Returns the size of a model's files in bytes; 0 if there are none."""
    return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))


def update_limit(args: ServingSide) -> float:
    """Returns --weight-update-timeout in seconds; infinity for 0."""
    if args.weight_update_timeout is not None:
        return args.weight_update_timeout or math.inf
    return max(UPDATE, model_bytes(args.hf_checkpoint) / SLOW_DISK)


def save_limit(args: Arguments) -> float:
    """Returns --save-timeout in seconds; 0: no limit."""
    return _checkpoint_limit(args) if args.save_timeout is None else args.save_timeout


def load_limit(args: Arguments) -> float:
    """Returns --load-timeout in seconds; 0: no limit."""
    return _checkpoint_limit(args) if args.load_timeout is None else args.load_timeout


def _checkpoint_limit(args: Arguments) -> float:
    state = 1 if args.use_lora else STATE
    return max(CHECKPOINT, state * model_bytes(args.hf_checkpoint) / SLOW_DISK)
