"""One checksum for weights, computed by trainer and engine on the tensors that they really hold."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

LM_HEAD = "lm_head.weight"
EMBEDDING_SUFFIX = "embed_tokens.weight"


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """Hex SHA-256 over name, dtype, shape and raw bytes of all tensors in the order of their names.

    An output head tied to the input embedding is left out: some holders store it, others do not.
    """
    digest = hashlib.sha256()
    for name in sorted(weights):
        if name == LM_HEAD and is_tied(weights):
            continue
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}|{str(tensor.dtype).removeprefix('torch.')}|{list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def is_tied(weights: Mapping[str, Tensor]) -> bool:
    """Whether there is an output head that only repeats the input embedding."""
    head = weights.get(LM_HEAD)
    if head is None:
        return False
    for name, tensor in weights.items():
        if name.endswith(EMBEDDING_SUFFIX) and tensor.shape == head.shape and tensor.dtype == head.dtype:
            return tensor.data_ptr() == head.data_ptr() or torch.equal(tensor, head)
    return False
