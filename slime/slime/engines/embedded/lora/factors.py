"""Low-rank factors of one adapter, read from a PEFT folder and checked against the served model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slime.engines.embedded.adapters import AdapterDelta, AdapterError, read_adapter
from slime.engines.embedded.model import ServedModel
from slime.engines.requests import WeightsError


@dataclass(frozen=True, eq=False)
class AdapterFactors:
    """One version of an adapter, on the model's device and in its dtype.

    Attributes:
        checksum: checksum of the tensors in the adapter's file.
        down: A [rank, in] by linear layer name.
        up: B transposed, [rank, out], by linear layer name.
    """

    name: str
    version: int
    path: str
    checksum: str
    rank: int
    scale: float
    down: dict[str, Tensor]
    up: dict[str, Tensor]

    @property
    def nbytes(self) -> int:
        """Returns the size of all factors in bytes."""
        return sum(tensor.nbytes for part in (self.down, self.up) for tensor in part.values())


def adaptable_layers(model: ServedModel) -> dict[str, Any]:
    """Returns the linear layers that adapters may change, by name: all that process tokens, but no vision
    tower."""
    inside = {id(layer) for layer in model.module.get_decoder().modules()}
    inside.add(id(model.module.get_output_embeddings()))
    return {
        name: layer
        for name, layer in model.module.named_modules()
        if isinstance(layer, nn.Linear) and id(layer) in inside
    }


def read_factors(folder: str, model: ServedModel, name: str, version: int) -> AdapterFactors:
    """Returns the adapter in a folder, as `name` at `version`.

    Raises:
        WeightsError: the folder has no adapter, or one that cannot be applied to this model row by row. This
            includes whole weights, unknown layers, wrong shapes, differing ranks, and values that are not
            finite.
    """
    try:
        adapter = read_adapter(folder)
    except AdapterError as error:
        raise WeightsError(str(error)) from error
    if adapter is None:
        raise WeightsError(f"{folder} is not an adapter: it has no adapter_config.json")
    if adapter.whole:
        raise WeightsError(
            f"{folder} contains whole weights ({min(adapter.whole)}), but only low-rank factors "
            "are supported; merge the adapter into its base, and serve the result as a model"
        )
    rank = _rank(folder, adapter)
    down: dict[str, Tensor] = {}
    up: dict[str, Tensor] = {}
    layers = adaptable_layers(model)
    for weight, (first, second) in adapter.factors.items():
        layer = weight.removesuffix(".weight")
        target = layers.get(layer)
        if target is None:
            raise WeightsError(f"{folder} changes {layer}, which is not a linear layer of this model")
        if (second.shape[0], first.shape[1]) != (target.out_features, target.in_features):
            raise WeightsError(
                f"{folder}: the factors of {layer} do not match its shape {list(target.weight.shape)}"
            )
        down[layer], up[layer] = _placed(folder, layer, first, model), _placed(folder, layer, second.T, model)
    return AdapterFactors(name, version, folder, adapter.checksum, rank, adapter.scale, down, up)


def _rank(folder: str, adapter: AdapterDelta) -> int:
    ranks = {size for first, second in adapter.factors.values() for size in (first.shape[0], second.shape[1])}
    if len(ranks) != 1:
        raise WeightsError(
            f"{folder} has factors of {len(ranks)} different ranks; all layers need the same rank"
        )
    return int(ranks.pop())


def _placed(folder: str, layer: str, factor: Tensor, model: ServedModel) -> Tensor:
    placed = factor.to(device=model.device, dtype=model.dtype).contiguous()
    if not bool(torch.isfinite(placed).all()):
        raise WeightsError(f"{folder}: the factors of {layer} contain values that are not finite")
    return placed
