"""Default time limits of the stages of a run: the usual one, or the time that a model of this size needs on a slow
disk. A checkpoint of a large model has hundreds of gigabytes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.sides import ServingSide

UPDATE = 300.0
"""Seconds for a stage of a weight update of any model."""
CHECKPOINT = 1800.0
"""Seconds for a checkpoint, or for loading one, of any model."""
SLOW_DISK = 100e6
"""Bytes a second of a network disk."""
STATE = 7
"""Size of a checkpoint if all weights are trained, relative to the model in bfloat16: the model, and weights and two
moments in fp32."""


def model_bytes(folder: str) -> int:
    """Bytes of a model's files; 0 if there are none."""
    return sum(file.stat().st_size for file in Path(folder).glob("*.safetensors"))


def update_limit(args: ServingSide) -> float:
    """Seconds of --weight-update-timeout, infinite for 0."""
    if args.weight_update_timeout is not None:
        return args.weight_update_timeout or math.inf
    return max(UPDATE, model_bytes(args.hf_checkpoint) / SLOW_DISK)


def save_limit(args: Arguments) -> float:
    """Seconds of --save-timeout; 0: no limit."""
    return _checkpoint_limit(args) if args.save_timeout is None else args.save_timeout


def load_limit(args: Arguments) -> float:
    """Seconds of --load-timeout; 0: no limit."""
    return _checkpoint_limit(args) if args.load_timeout is None else args.load_timeout


def _checkpoint_limit(args: Arguments) -> float:
    state = 1 if args.use_lora else STATE
    return max(CHECKPOINT, state * model_bytes(args.hf_checkpoint) / SLOW_DISK)
