"""LoRA adapters (Hu et al. 2021) of a megatron-core linear module, sharded over tensor-parallel ranks like
the module.

megatron-core joins linear modules that are separate in a Hugging Face model (queries, keys and values; gate
and up projection). Here each of these has its own adapter, as in PEFT.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from megatron.core.tensor_parallel import mappings
from torch import Tensor, nn


class Adapter(nn.Module):
    """This rank's shards of the factors A [r, in] and B [out, r] of one Hugging Face module."""

    def __init__(self, down: Tensor, up: Tensor) -> None:
        super().__init__()
        self.down, self.up = nn.Parameter(down), nn.Parameter(up)


@dataclass(frozen=True)
class Output:
    """The order of a module's outputs on this rank.

    Attributes:
        sizes: output size of each joined Hugging Face module, by the last part of its name.
        groups: number of groups in the output; each contains a part of every joined module.
    """

    sizes: Mapping[str, int]
    groups: int = 1

    def joined(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Joins outputs [..., size] by name (zeros for missing names) to [..., out]."""
        like = next(iter(parts.values()))
        whole = [
            parts[name] if name in parts else like.new_zeros(*like.shape[:-1], size)
            for name, size in self.sizes.items()
        ]
        if self.groups == 1:
            return torch.cat(whole, -1)
        grouped = [part.view(*part.shape[:-1], self.groups, -1) for part in whole]
        return torch.cat(grouped, -1).flatten(-2)


class Adapters(nn.Module):
    """All adapters of one linear module.

    Args:
        parts: adapters by the last part of the Hugging Face module's name.
        by_inputs: the module is sharded along its inputs (RowParallelLinear), not its outputs.
        scattered: outside the module, tensor-parallel ranks have different tokens (sequence parallelism).
    """

    def __init__(
        self,
        parts: dict[str, Adapter],
        output: Output,
        by_inputs: bool,
        scattered: bool,
        scale: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.output, self.by_inputs, self.scattered, self.scale = output, by_inputs, scattered, scale
        self.dropout = nn.Dropout(dropout)
        self.on = True

    def add(self, module: nn.Module, inputs: tuple[Tensor, ...], output: tuple[Tensor, Any]) -> Any:
        """Forward hook of the linear module: adds the adapters' output."""
        return (output[0] + self(inputs[0]), output[1]) if self.on else output

    def forward(self, x: Tensor) -> Tensor:
        """Returns the adapters' output for the module's input `x`, which is added to the module's output."""
        known = self._parts
        between = self._exchange(self.dropout(x) @ torch.cat([part.down for part in known.values()]).T)
        each = torch.split(between, [part.down.shape[0] for part in known.values()], -1)
        outputs = {name: values @ part.up.T for (name, part), values in zip(known.items(), each, strict=True)}
        return self.scale * self.output.joined(outputs)

    def merged(self, weight: Tensor) -> Tensor:
        """Returns the module's weight [out, in] with merged adapters, as a new tensor."""
        products = {name: (part.up.float() @ part.down.float()).T for name, part in self._parts.items()}
        return (weight.float() + self.scale * self.output.joined(products).T).to(weight.dtype)

    @property
    def _parts(self) -> dict[str, Adapter]:
        return {name: part for name, part in self.parts.items() if isinstance(part, Adapter)}

    def _exchange(self, between: Tensor) -> Tensor:
        """Exchanges the output [n, 1, rank] of the first factors between tensor-parallel ranks for the second
        factors.

        This is the only exchange.
        """
        if self.by_inputs and self.scattered:
            exchange = mappings.reduce_scatter_to_sequence_parallel_region
        elif self.by_inputs:
            exchange = mappings.reduce_from_tensor_model_parallel_region
        elif self.scattered:
            exchange = mappings.gather_from_sequence_parallel_region
        else:
            exchange = mappings.copy_to_tensor_model_parallel_region
        exchanged: Tensor = exchange(between)
        return exchanged


def adapters_of(model: nn.Module) -> list[Adapters]:
    """Returns all adapters of a model; empty without LoRA."""
    return [module for module in model.modules() if isinstance(module, Adapters)]


@contextmanager
def without_adapters(model: nn.Module) -> Iterator[None]:
    """Disables the adapters inside the context."""
    switched = adapters_of(model)
    for adapters in switched:
        adapters.on = False
    try:
        yield
    finally:
        for adapters in switched:
            adapters.on = True
