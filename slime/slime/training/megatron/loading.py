"""Builds megatron-core models and loads them from a Hugging Face folder.

The critic is a model's body with one linear output, sharded like the policy.
"""

from __future__ import annotations

from collections.abc import Container
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn

from slime.losses.dense import exact
from slime.training.attention.kernels import attention_name
from slime.training.attention.linear import DECAY
from slime.training.core.model import computing_dtype, serves_fp32
from slime.training.core.packing import PackedBatch
from slime.training.megatron.core_config import read_config, transformer_config
from slime.training.megatron.lora import add_adapters
from slime.training.megatron.model import PackedGPT
from slime.training.megatron.parallel import Parallel
from slime.training.megatron.pipeline import ShardedModel
from slime.training.megatron.weight_map import Entry
from slime.training.megatron.weights import WeightMap
from slime.weights.folders import fp32_vectors

if TYPE_CHECKING:
    from slime.flags import Arguments

Core = TypeVar("Core", bound=PackedGPT)


def load_model(
    folder: str,
    args: Arguments,
    parallel: Parallel,
    device: torch.device,
    trained: bool = False,
    on_logits: bool = False,
) -> ShardedModel:
    """Returns this rank's shard of the model in `folder`, with adapters if it is trained and the flags
    request them.

    Args:
        on_logits: losses get logits, not a distribution.

    Raises:
        ConfigError: like `load_core`; also if the model does not support the adapters.
    """
    core, weights = load_core(PackedGPT, folder, args, parallel, device)
    if trained and args.use_lora:
        add_adapters(core, weights, args)
    return ShardedModel(core, weights, on_logits)


def load_core(
    kind: type[Core], folder: str, args: Arguments, parallel: Parallel, device: torch.device
) -> tuple[Core, WeightMap]:
    """Returns this rank's shard of the model in `folder`, as a stage of class `kind`, and its weight map.

    Raises:
        ConfigError: the backend does not support the model, the ranks do not divide it, a weight is missing,
            or an attention kernel is not installed.
    """
    attention_name(args)
    hf = read_config(folder)
    core = kind(hf, transformer_config(hf, args, computing_dtype(args, device.type)), parallel, args)
    core.to(device)  # moved before loading, so that the weights are never in CPU memory together
    weights = WeightMap(core, hf)
    if core.config.params_dtype == torch.bfloat16 and serves_fp32(args):
        _keep_exact(weights, fp32_vectors(folder))
    weights.load(folder)
    return core, weights


def _keep_exact(weights: WeightMap, stored: Container[str]) -> None:
    """Keeps decays in fp32 if the folder has them in fp32, since their errors grow exponentially with length."""
    for name, entry in weights.entries.items():
        path, _, last = name.rpartition(".")
        if last in DECAY and entry.sources[0] in stored:
            module = weights.model.get_submodule(path)
            setattr(module, last, nn.Parameter(getattr(module, last).detach().float()))


HEAD = "value_head.weight"


class PackedValues(PackedGPT):
    """One stage of a critic; the last one outputs a value for each row instead of logits."""

    has_head = False

    def __init__(self, *how: Any) -> None:
        super().__init__(*how)
        if self.post_process:
            self.output_layer = None

    def add_head(self, seed: int) -> None:
        """Adds the linear output. Every rank draws the same initial values, equal to those of FSDP."""
        width, like = self.config.hidden_size, next(self.parameters())
        drawn = torch.empty(1, width)
        nn.init.normal_(drawn, std=(width + 1) ** -0.5, generator=torch.Generator().manual_seed(seed))
        self.value_head = nn.Linear(width, 1, bias=False, device=like.device, dtype=like.dtype)
        self.value_head.weight.data.copy_(drawn)


class ShardedValues(ShardedModel):
    """A sharded critic, whose losses get values [T]."""

    def _of(self, output: Tensor, packed: PackedBatch) -> Any:
        return self._own(output, packed).float()

    def _per_token(self, output: Tensor, packed: PackedBatch) -> Tensor:
        return self._own(output, packed).to(exact(self.dtype))

    def _own(self, output: Tensor, packed: PackedBatch) -> Tensor:
        hidden, rows = self.core.own_rows(output, packed)
        return rows.share(self.core.value_head(hidden).flatten())

    def values(self, packed: PackedBatch) -> Tensor:
        """Returns fp32 values [T] of the pack on every rank, without gradients."""
        return self.of_all([packed])[0].float()


def load_critic(args: Arguments, parallel: Parallel, device: torch.device) -> ShardedValues:
    """Returns the critic that the flags select. Raises ConfigError like `load_core`."""
    folder = args.critic_load or args.hf_checkpoint
    core, weights = load_core(PackedValues, folder, args, parallel, device)
    if args.use_lora:
        add_adapters(core, weights, args)
    if core.post_process:
        core.add_head(args.seed)
        weights.entries[HEAD] = Entry((HEAD,), "value")
    return ShardedValues(core, weights)
