"""One pipeline stage of a decoder on megatron-core, for packs.

The backward pass may recompute activations instead of storing them. megatron-core's own activation
checkpoints need CUDA's random state; these also work on CPUs. The only random operation in a layer is the
adapters' dropout, whose state torch keeps.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import (
    gather_from_sequence_parallel_region,
    gather_from_tensor_model_parallel_region,
)
from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
from megatron.core.transformer.enums import AttnMaskType
from megatron.core.transformer.identity_op import IdentityOp
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import (
    TransformerBlockSubmodules,
    get_num_layers_to_build,
)
from megatron.core.transformer.transformer_config import TransformerConfig
from megatron.core.transformer.transformer_layer import (
    TransformerLayer,
    TransformerLayerSubmodules,
    get_transformer_layer_offset,
)
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from slime.training.core.packing import Layout, PackedBatch
from slime.training.core.shared_rows import OwnRows
from slime.training.megatron.attention import GatedSelfAttention, PackedAttention, Places
from slime.training.megatron.core_config import inverse_frequencies, padded_vocabulary
from slime.training.megatron.delta_net import GatedDeltaNet
from slime.training.megatron.mlp import GatedMLP
from slime.training.megatron.moe import MixtureOfExperts
from slime.training.megatron.norms import RMSNorm, ZeroCentredRMSNorm
from slime.training.megatron.parallel import Parallel
from slime.utils.decoders import HYBRIDS, has_experts, is_linear

if TYPE_CHECKING:
    from megatron.core.transformer.transformer_block import TransformerBlock
    from transformers import PretrainedConfig

    from slime.flags.sides import TrainingSide


def block_spec(
    config: TransformerConfig, hf: PretrainedConfig, layers: Sequence[int], kernel: str
) -> TransformerBlockSubmodules:
    """Returns the submodules of this stage's layers; `layers` are their numbers in the whole model."""
    norm: Any = ZeroCentredRMSNorm if hf.model_type in HYBRIDS else RMSNorm
    qk_norm: Any = norm if config.qk_layernorm else IdentityOp
    attention = ModuleSpec(
        module=GatedSelfAttention if config.attention_output_gate else SelfAttention,
        params={"attn_mask_type": AttnMaskType.causal},
        submodules=SelfAttentionSubmodules(
            linear_qkv=ColumnParallelLinear,
            core_attention=partial(PackedAttention, kernel=kernel),
            linear_proj=RowParallelLinear,
            q_layernorm=qk_norm,
            k_layernorm=qk_norm,
        ),
    )
    specs = [
        ModuleSpec(
            module=TransformerLayer,
            submodules=TransformerLayerSubmodules(
                input_layernorm=norm,
                self_attention=GatedDeltaNet if is_linear(hf, layer) else attention,
                self_attn_bda=get_bias_dropout_add,
                pre_mlp_layernorm=norm,
                mlp=MixtureOfExperts if has_experts(hf, layer) else GatedMLP,
                mlp_bda=get_bias_dropout_add,
            ),
        )
        for layer in layers
    ]
    return TransformerBlockSubmodules(layer_specs=specs, layer_norm=norm)


class PackedGPT(GPTModel):  # type: ignore[misc]
    """The pipeline stage of this rank. All ranks must make the same calls.

    Attributes:
        has_head: this stage computes logits, with the embedding if both are tied.
        chunk: number of logit rows in memory at a time; 0: all.
    """

    has_head = True

    def __init__(
        self, hf: PretrainedConfig, config: TransformerConfig, parallel: Parallel, args: TrainingSide
    ) -> None:
        layers = get_num_layers_to_build(config, pp_rank=parallel.pp.rank)
        first = get_transformer_layer_offset(config, None, parallel.pp.rank)
        super().__init__(
            config,
            block_spec(config, hf, range(first, first + layers), args.attn_implementation),
            vocab_size=padded_vocabulary(hf, parallel.tp.size),
            max_sequence_length=hf.max_position_embeddings,
            pre_process=parallel.is_first,
            post_process=parallel.is_last,
            share_embeddings_and_output_weights=hf.tie_word_embeddings,
            position_embedding_type="none",
        )
        self.parallel, self.real_vocabulary = parallel, int(hf.vocab_size)
        self.frequencies, self.chunk = inverse_frequencies(hf), max(args.log_probs_chunk_size, 0)
        if self.post_process:
            self.output_layer.sequence_parallel = False  # its input is already gathered
        recompute(self.decoder, args)

    def setup_embeddings_and_output_layer(self) -> None:
        """Does nothing. Both copies of a tied embedding are loaded with equal values, and their gradients are
        summed."""

    def stage(self, packed: PackedBatch, received: Tensor | None) -> Tensor:
        """Maps hidden states [n, 1, H] of the previous stage (None on the first) to those of this stage."""
        whole = self.padded(packed)
        positions = _part(whole.position_ids[0], self.parallel.cp.rank, self.parallel.cp.size)
        if self.pre_process:
            ids = _part(whole.input_ids[0], self.parallel.cp.rank, self.parallel.cp.size)
            hidden = self.embedding(input_ids=ids.unsqueeze(0), position_ids=positions.unsqueeze(0))
        else:
            hidden = received
            self.decoder.set_input_tensor(received)
        places = self.places(whole.layout, positions)
        output: Tensor = self.decoder(hidden_states=hidden, attention_mask=places)
        return output

    def places(self, layout: Layout, positions: Tensor) -> Places:
        """Returns the `Places` of the tokens at positions [n], for all layers."""
        angles = positions.float().unsqueeze(-1) * self.frequencies.to(positions.device)
        both = torch.cat([angles, angles], -1)[:, None, None, :]
        return Places(
            layout, both.cos().to(self.config.params_dtype), both.sin().to(self.config.params_dtype)
        )

    def padded(self, packed: PackedBatch) -> PackedBatch:
        """Returns the pack with padding at its end, so that all ranks get equally many tokens."""
        size = packed.input_ids.shape[1]
        # mixture layers divide their tokens over the tensor-parallel ranks too
        mixed = self.config.num_moe_experts is not None
        ranks = self.parallel.cp.size * self.parallel.tp.size if mixed else self.ranks_of_a_sequence
        missing = -size % ranks
        if not missing:
            return packed
        return replace(
            packed,
            input_ids=nn.functional.pad(packed.input_ids, (0, missing)),
            position_ids=nn.functional.pad(packed.position_ids, (0, missing)),
            layout=(*packed.layout, (missing,)),
        )

    @property
    def ranks_of_a_sequence(self) -> int:
        return self.parallel.cp.size * (self.parallel.tp.size if self.config.sequence_parallel else 1)

    def hidden_shape(self, packed: PackedBatch) -> tuple[int, int, int]:
        """Returns the shape of the hidden states that a stage sends to the next."""
        tokens = self.padded(packed).input_ids.shape[1]
        return tokens // self.ranks_of_a_sequence, 1, self.config.hidden_size

    @property
    def first_column(self) -> int:
        """Returns the id of the first token whose logit this rank computes."""
        return int(self.vocab_size) // self.parallel.tp.size * self.parallel.tp.rank

    def own_tokens(self, output: Tensor) -> Tensor:
        """Maps the last stage's output [n, 1, H] to hidden states [n, H] of this context-parallel rank's
        tokens."""
        if self.config.sequence_parallel:
            output = gather_from_sequence_parallel_region(output, tensor_parallel_output_grad=False)
        return output.squeeze(1)

    def own_rows(self, output: Tensor, packed: PackedBatch) -> tuple[Tensor, OwnRows]:
        """Returns hidden states [t, H] of this rank's tokens before targets, and their indices among the T
        targets."""
        hidden, axis = self.own_tokens(output), self.parallel.cp
        places = packed.logit_positions - axis.rank * len(hidden)
        is_own = (places >= 0) & (places < len(hidden))
        numbers = (
            torch.arange(len(places), device=places.device) if axis.size == 1 else is_own.nonzero()[:, 0]
        )
        return hidden[places[numbers]], OwnRows(numbers, len(places), axis.group)

    def logits(self, rows: Tensor) -> Tensor:
        """Maps hidden states [n, H] to this rank's columns of their logits [n, columns]."""
        tied = self.share_embeddings_and_output_weights and self.pre_process
        weight = self.embedding.word_embeddings.weight if tied else None
        logits: Tensor = self.output_layer(rows.unsqueeze(1), weight=weight)[0].squeeze(1)
        return logits[:, : max(self.real_vocabulary - self.first_column, 0)]

    def whole_vocabulary(self, logits: Tensor) -> Tensor:
        """Gathers this rank's columns [n, columns] to logits [n, V] on every rank. Later operations are equal
        on all ranks."""
        missing = self.vocab_size // self.parallel.tp.size - logits.shape[1]
        whole: Tensor = gather_from_tensor_model_parallel_region(nn.functional.pad(logits, (0, missing)))
        return whole[:, : self.real_vocabulary]


def _part(values: Tensor, rank: int, ranks: int) -> Tensor:
    return values.chunk(ranks)[rank]


MODULES = {"core_attn": "self_attention.core_attention", "mlp": "mlp"}


def recompute(block: TransformerBlock, args: TrainingSide) -> None:
    """Applies the recomputation flags to a transformer block of megatron-core."""
    granularity = args.recompute_granularity
    if args.gradient_checkpointing or (granularity, args.recompute_method) == ("full", "uniform"):
        block.config = copy.copy(block.config)
        block.config.recompute_granularity = "full"  # makes the block call the function that is replaced here
        block._checkpointed_forward = partial(_in_groups, block.layers, args.recompute_num_layers or 1)
    elif granularity == "selective":
        assert args.recompute_modules is not None
        for layer in block.layers:
            for name in args.recompute_modules.split(","):
                _again(layer.get_submodule(MODULES[name]))
    elif granularity == "full":
        for layer in block.layers[: args.recompute_num_layers]:
            _again(layer)


def _again(module: Any) -> None:
    module.forward = partial(checkpoint, module.forward, use_reentrant=False)


def _in_groups(layers: nn.ModuleList, size: int, hidden_states: Tensor, **inputs: Any) -> Tensor:
    """Runs the layers in sequence and stores only the input of every group of `size` layers."""
    mask = inputs["attention_mask"]

    def run(hidden: Tensor, first: int) -> Tensor:
        for layer in layers[first : first + size]:
            hidden, _context = layer(hidden_states=hidden, attention_mask=mask)
        return hidden

    for first in range(0, len(layers), size):
        hidden_states = checkpoint(run, hidden_states, first, use_reentrant=False)
    return hidden_states
