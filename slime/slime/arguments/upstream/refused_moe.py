"""Flags of Megatron-LM about mixtures of experts that are not ours: what happens anyway, and what is said to the rest."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

MOE: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    (
        "experts are not cut; deal them to the same ranks with --expert-model-parallel-size",
        ("expert-tensor-parallel-size",),
        ("1",),
    ),
    (
        "routing is not pushed towards equal loads, which would be a second objective",
        ("moe-aux-loss-coeff", "moe-z-loss-coeff"),
        ("0", "0.0"),
    ),
    (
        "routing is not pushed towards equal loads, which would be a second objective",
        ("moe-router-load-balancing-type",),
        ("none",),
    ),
    ("tokens go to the ranks of their experts", ("moe-token-dispatcher-type",), ("alltoall",)),
    ("no token is dropped", ("moe-token-drop-policy",), ("probs", "position")),
    (
        "one kernel multiplies with all experts of a rank where there is one",
        ("moe-grouped-gemm", "moe-permute-fusion"),
        ("",),
    ),
    ("experts are weighted by a softmax", ("moe-router-score-function",), ("softmax",)),
    (
        "the router computes as transformers does: its product in the dtype of the weights, its softmax in fp32",
        ("moe-router-dtype",),
        (),
    ),
    (
        "each forward pass chooses the experts of its tokens anew; --use-tis corrects what differs from the engine",
        ("use-routing-replay", "use-rollout-routing-replay"),
        (),
    ),
)
"""(reason, flags, values that are taken because they ask for what happens anyway)."""


def same_layers(text: str, config: dict[str, Any]) -> bool:
    """Whether --moe-layer-freq, one 0 or 1 a layer, names the layers with experts that config.json names."""
    from slime.utils.decoders import has_experts  # imports torch, which the driver does without

    defaults = {
        "mlp_only_layers": [],
        "decoder_sparse_step": 1,
        "num_experts": config.get("num_local_experts", 0),
    }
    model = SimpleNamespace(**(defaults | config))
    mixed = [int(has_experts(model, layer)) for layer in range(config["num_hidden_layers"])]
    try:
        return bool(json.loads(text) == mixed)
    except ValueError:
        return False
