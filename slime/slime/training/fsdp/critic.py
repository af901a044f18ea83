"""The critic's model under FSDP2."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from slime.errors import ConfigError
from slime.training.core.packing import PackedBatch
from slime.training.fsdp.loading import load_as
from slime.training.fsdp.lora import add_adapters
from slime.vision.models import sees

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from slime.flags import Arguments
    from slime.flags.sides import TrainingSide


class PackedValues(nn.Module):
    """The body of a causal language model with one linear output instead of a vocabulary.

    With adapters, body and adapters are those of LoRA, and the output is trained as a whole.

    Attributes:
        in_fp32: its modules that compute in fp32 whatever the others do.

    Raises:
        ConfigError: a model that sees.
    """

    def __init__(self, model: PreTrainedModel, seed: int) -> None:
        super().__init__()
        if sees(model.config):
            raise ConfigError(
                "--advantage-estimator ppo: the critic would not see the images of the policy; take grpo"
            )
        self.body = model.get_decoder()
        self.config = model.config
        self._no_split_modules = model._no_split_modules
        self.in_fp32 = ("head",)
        width = model.config.get_text_config().hidden_size
        self.head = nn.Linear(width, 1, bias=False, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)  # every rank draws the same
        nn.init.normal_(self.head.weight, std=(width + 1) ** -0.5, generator=generator)

    def values(self, packed: PackedBatch) -> Tensor:
        """fp32 values [T] at the targets of the pack, before each of them."""
        values: Tensor = self(
            positions=packed.logit_positions,
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            packed_layout=packed.layout,
        )
        return values

    def forward(self, positions: Tensor, **inputs: Any) -> Tensor:
        """Values [T] in fp32 at `positions` [T] of the pack."""
        hidden = self.body(use_cache=False, **inputs).last_hidden_state[0, positions]
        values: Tensor = self.head(hidden.float()).squeeze(-1).clone()  # FSDP wants no view
        return values


def load_critic(args: Arguments, mesh: DeviceMesh) -> PackedValues:
    """The critic of the flags. Raises ConfigError as `load_as`."""
    return load_as(partial(_value_model, args=args), args.critic_load or args.hf_checkpoint, mesh, args)


def _value_model(model: PreTrainedModel, args: TrainingSide) -> PackedValues:
    if args.use_lora:
        add_adapters(model, args)  # in place
    return PackedValues(model, args.seed)
