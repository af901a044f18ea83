"""A self-check before serving: is everything this architecture remembers in the KV store?"""

from __future__ import annotations

import torch

from slime.engines.embedded.attention import ChunkSpan, RaggedBatch
from slime.engines.embedded.model import ModelError, ServedModel, first_line
from slime.engines.embedded.slab import PrefillCache

_TOKENS = 8


def bytes_per_token(model: ServedModel) -> int:
    """Bytes of keys and values of one token, seen in a real forward pass.

    The pass is made whole and in two chunks. A model that remembers anything outside attention (a state-space
    layer, say) gives other logits in chunks and is refused with ModelError, as is one with attention that is
    not supported.
    """
    with torch.inference_mode():
        try:
            cache = PrefillCache(_TOKENS)
            whole = _run(model, cache, 0, _TOKENS)
            parts = PrefillCache(_TOKENS)
            _run(model, parts, 0, _TOKENS // 2)
            chunked = _run(model, parts, _TOKENS // 2, _TOKENS)
        except (NotImplementedError, TypeError, AttributeError) as error:
            raise ModelError(
                f"the embedded engine cannot run this architecture: {first_line(error)}"
            ) from error
    tolerance = 1e-3 if model.dtype == torch.float32 else 5e-2
    if not cache.layers or not torch.allclose(whole.float(), chunked.float(), rtol=tolerance, atol=tolerance):
        raise ModelError(
            "the embedded engine cannot run this architecture: it keeps state outside its attention"
        )
    return cache.bytes_per_token


def _run(model: ServedModel, cache: PrefillCache, first: int, last: int) -> torch.Tensor:
    positions = list(range(first, last))
    batch = RaggedBatch([], [ChunkSpan(cache, 0, first, last)])
    return model.forward(positions, positions, [len(positions) - 1], batch)
