"""One checksum for weights, which trainer and engine compute from the tensors in their memory."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from slime.weights.digests import TensorDigest, digest_tensors
from slime.weights.versions import CHECKSUM_PREFIX

LM_HEAD = "lm_head.weight"
EMBEDDING_SUFFIX = "embed_tokens.weight"


def weights_checksum(weights: Mapping[str, Tensor]) -> str:
    """Returns the checksum of tensors in memory. Raises NotFiniteError for a value that is not finite."""
    return checksum_of(digest_tensors(weights))


def checksum_of(digests: Mapping[str, TensorDigest]) -> str:
    """Returns `xxh3:` and the hex SHA-256 over name, dtype, shape and digest of all tensors, ordered by name.

    An output head tied to the input embedding is omitted, because only some programs store it.
    """
    root = hashlib.sha256()
    for name, one in sorted(without_tied_head(digests).items()):
        root.update(f"{name}|{one.dtype}|{list(one.shape)}|{one.digest}\n".encode())
    return CHECKSUM_PREFIX + root.hexdigest()


def without_tied_head(digests: Mapping[str, TensorDigest]) -> dict[str, TensorDigest]:
    """Returns all digests except that of an output head that equals the input embedding."""
    head = digests.get(LM_HEAD)
    tied = any(name.endswith(EMBEDDING_SUFFIX) and one == head for name, one in digests.items())
    return {name: one for name, one in digests.items() if name != LM_HEAD or not tied}


def legacy_checksum(weights: Mapping[str, Tensor]) -> str:
    """Returns the checksum of releases up to 0.2.0: hex SHA-256 over name, dtype, shape and raw bytes."""
    digest = hashlib.sha256()
    for name in sorted(weights):
        if name == LM_HEAD and _repeats_embedding(weights):
            continue
        tensor = weights[name].detach().cpu().contiguous()
        digest.update(f"{name}|{str(tensor.dtype).removeprefix('torch.')}|{list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _repeats_embedding(weights: Mapping[str, Tensor]) -> bool:
    head = weights[LM_HEAD]
    same = (x for name, x in weights.items() if name.endswith(EMBEDDING_SUFFIX))
    return any(x.shape == head.shape and x.dtype == head.dtype and torch.equal(x, head) for x in same)
