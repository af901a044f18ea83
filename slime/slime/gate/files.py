"""Stage a, in the trainer: compares the candidate's files with those of the live version."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from slime.errors import EngineError
from slime.rented.versions import is_rented
from slime.weights.artifact import weight_files
from slime.weights.update import CandidateRejected
from slime.weights.versions import is_adapter

STAGE = "files"
PIECE = 2**18
"""Elements of a tensor that are compared at a time: 1 MiB in fp32."""


class Opened(Protocol):
    """A file of tensors: interface of `safetensors.safe_open`."""

    def keys(self) -> list[str]: ...
    def get_tensor(self, name: str) -> Tensor: ...


Files = dict[str, Opened]
"""The open file of each tensor, by the tensor's name."""


def measure_files(candidate: str, live: str) -> dict[str, float]:
    """Compares two folders of safetensors files tensor by tensor, with at most two tensors in memory.

    Returns:
        `change`, the norm of the difference over the norm of the live weights. Empty if only one of the
        folders is an adapter, or if the candidate is stored at a service.

    Raises:
        CandidateRejected: a file cannot be read, a value is not finite, or names, shapes or dtypes of tensors
            differ from the live ones.
    """
    if is_rented(Path(candidate)):
        return {}
    new = _open(Path(candidate))
    try:
        old = _open(Path(live))
    except CandidateRejected:  # the live files are gone, so there is nothing to compare with
        old = None
    if old is None or is_adapter(Path(candidate)) != is_adapter(Path(live)):
        for name in new:
            _check_finite(name, _tensor(new, name))
        return {}
    _check_names(new, old)
    moved = size = 0.0
    for name in new:
        now, before = _tensor(new, name), _tensor(old, name)
        if now.shape != before.shape or now.dtype != before.dtype:
            raise CandidateRejected(
                f"{name} is {_kind(now)}, but the live weights have {_kind(before)}", STAGE
            )
        more = squares(now, before)
        if not math.isfinite(sum(more)):
            _check_finite(name, now)
        moved, size = moved + more[0], size + more[1]
    return {"change": math.sqrt(moved / size) if size else math.sqrt(moved)}


def squares(now: Tensor, before: Tensor) -> tuple[float, float]:
    """Returns the sums of squares of the difference, and of `before`.

    They are computed in pieces that fit the processor's cache, each summed in fp32 by one dot product. fp64
    over a whole tensor takes 15 times as long (4e9 numbers: 6 s instead of 90 to 156), and the trainer waits
    for it.
    """
    moved = size = 0.0
    pieces = (torch.split(tensor.reshape(-1), PIECE) for tensor in (now, before))
    for one, other in zip(*pieces, strict=True):
        wide = other.float()
        difference = one.float() - wide
        moved += float(torch.dot(difference, difference))
        size += float(torch.dot(wide, wide))
    return moved, size


def _open(folder: Path) -> Files:
    """Returns each tensor's open file; files are closed when they are no longer referenced."""
    try:
        files: Files = {}
        for file in weight_files(folder):
            handle: Opened = safe_open(file, framework="pt")
            files |= dict.fromkeys(handle.keys(), handle)
    except (EngineError, SafetensorError, OSError, ValueError, KeyError) as error:
        raise CandidateRejected(f"cannot read {folder}: {error}", STAGE) from error
    return files


def _tensor(files: Files, name: str) -> Tensor:
    try:
        tensor: Tensor = files[name].get_tensor(name)
    except (SafetensorError, OSError) as error:
        raise CandidateRejected(f"cannot read {name}: {error}", STAGE) from error
    return tensor


def _check_finite(name: str, tensor: Tensor) -> None:
    if tensor.is_floating_point() and tensor.numel():
        ends = tensor.aminmax()
        if not all(math.isfinite(end) for end in ends):
            raise CandidateRejected(f"{name} contains values that are not finite", STAGE)


def _check_names(new: Files, old: Files) -> None:
    lacking, extra = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    if lacking:
        raise CandidateRejected(f"lacks {len(lacking)} tensors: {', '.join(lacking[:3])}", STAGE)
    if extra:
        raise CandidateRejected(f"has {len(extra)} additional tensors: {', '.join(extra[:3])}", STAGE)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
