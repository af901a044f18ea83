"""Copies of linear weights in the layout that oneDNN multiplies fastest.

With a plain weight, each oneDNN call first rearranges the operands. For the few rows of a decode step that
takes as long as the multiplication: a step of SmolLM2-135M in bf16 takes a quarter longer for one answer.
Results are bitwise equal. The copies take as much memory as the layers.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.nn import functional

ROWS = 16
"""Number of input rows for which the layout is chosen."""
SHARE = 0.25
"""Largest share of the available memory that the copies may take."""


def is_packed(device: torch.device, dtype: torch.dtype) -> bool:
    """Returns whether packing speeds up such weights: bf16 on an x86 processor with bf16 instructions."""
    return bool(
        device.type == "cpu"
        and dtype == torch.bfloat16
        and platform.machine().lower() in ("x86_64", "amd64")
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()  # False without oneDNN
    )


def packed_weights(packable: Mapping[str, str], tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Returns the packed weight of each linear layer by layer name; empty if memory is insufficient.

    Args:
        packable: name of each layer's weight, by layer name.
        tensors: the weights of one version by name.
    """
    weights = {layer: tensors[name] for layer, name in packable.items()}
    if sum(one.nbytes for one in weights.values()) > SHARE * psutil.virtual_memory().available:
        return {}
    return {name: torch.ops.mkldnn._reorder_linear_weight(weight, ROWS) for name, weight in weights.items()}


def use_packed(module: nn.Module, packed_of: Callable[[str], Tensor | None]) -> list[str]:
    """Makes the linear layers of a module use packed weights; returns the names of these layers.

    Args:
        packed_of: returns the packed weight of a layer, or None to use the plain one.
    """
    layers: dict[str, Any] = {
        name: layer for name, layer in module.named_modules() if type(layer) is nn.Linear
    }
    for name, layer in layers.items():
        layer.forward = _forward(layer, name, packed_of)
    return list(layers)


def _forward(
    layer: nn.Linear, name: str, packed_of: Callable[[str], Tensor | None]
) -> Callable[[Tensor], Tensor]:
    def forward(x: Tensor) -> Tensor:
        packed = packed_of(name)
        if packed is None:
            return functional.linear(x, layer.weight, layer.bias)
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, layer.bias, "none", [], "")
        return y

    return forward
