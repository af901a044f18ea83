"""Converts a Hugging Face config.json to megatron-core's configuration."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from megatron.core.transformer.transformer_config import TransformerConfig
from torch.nn.functional import silu
from transformers import AutoConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from slime.errors import ConfigError
from slime.training.core.fused import fuses_activations, fuses_norms
from slime.utils.decoders import DENSE, HYBRIDS, MIXTURES, head_dim, language_part

if TYPE_CHECKING:
    from transformers import PretrainedConfig

    from slime.flags.sides import TrainingSide

KNOWN = DENSE + MIXTURES + HYBRIDS
VOCABULARY_UNIT = 16
ROPES = ("default", "linear", "llama3")
FLAGS = {
    "tensor": "--tensor-model-parallel-size (TRAIN_TP)",
    "tensor x context": "--tensor-model-parallel-size (TRAIN_TP) or --context-parallel-size (TRAIN_CP)",
    "pipeline": "--pipeline-model-parallel-size (TRAIN_PP), or see --decoder-last-pipeline-num-layers",
}
"""The flags for each kind of parallelism, with the launch scripts' variables in brackets."""


def read_config(folder: str) -> Any:
    """Returns the configuration of a supported model; for a model with vision, of its decoder.

    Raises:
        ConfigError: the configuration is missing or unsupported; the message gives the reason.
    """
    try:
        config = language_part(
            AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        )
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"transformers cannot read a model configuration in {folder}: {error}") from error
    for reason in _unsupported(config):
        raise ConfigError(
            f"--train-backend megatron does not support {folder}: {reason}; use --train-backend fsdp"
        )
    return config


def _unsupported(config: PretrainedConfig) -> list[str]:
    kind = config.model_type
    if kind not in KNOWN:
        return [f"its model_type is {kind}; supported are {', '.join(KNOWN)}"]
    rope = rope_parameters(config).get("rope_type", "default")
    unsupported = {
        f"its hidden_act is {config.hidden_act}": config.hidden_act != "silu",
        "its attention_bias also applies to the output projection": getattr(config, "attention_bias", False),
        "its qkv_bias is false": not getattr(config, "qkv_bias", True),
        "its mlp_bias is true": getattr(config, "mlp_bias", False),
        "some layers have sliding windows": _slides(config),
        f"its rope_type is {rope}": rope not in ROPES,
        "rotary embeddings apply only to a part of each head": _rotated(config) != 1.0
        and kind not in HYBRIDS,
    }
    return [reason for reason, applies in unsupported.items() if applies]


def _slides(config: PretrainedConfig) -> bool:
    return "sliding_attention" in (getattr(config, "layer_types", None) or ())


def rope_parameters(config: PretrainedConfig) -> dict[str, Any]:
    known: dict[str, Any] = config.rope_parameters or {}
    return known


def _rotated(config: PretrainedConfig) -> float:
    """Returns the fraction of each head that the rotary embedding rotates."""
    return float(rope_parameters(config).get("partial_rotary_factor", 1.0))


def inverse_frequencies(config: PretrainedConfig) -> torch.Tensor:
    """Returns the inverse frequencies of the rotary embedding, [rotated dimensions / 2], in fp32, as transformers
    computes them."""
    parameters = rope_parameters(config)
    kind = parameters.get("rope_type", "default")
    if kind != "default":
        frequencies: torch.Tensor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))[0]
        return frequencies
    dimension = int(head_dim(config) * _rotated(config))
    steps = torch.arange(0, dimension, 2, dtype=torch.int64).float() / dimension
    result: torch.Tensor = 1.0 / (parameters["rope_theta"] ** steps)
    return result


def padded_vocabulary(config: PretrainedConfig, ranks: int) -> int:
    """Returns the number of rows of the embedding: one per token, padded to a multiple of the ranks.

    The number is the same for all powers of two up to 16 ranks, so that checkpoints fit other numbers of
    ranks.
    """
    unit = math.lcm(VOCABULARY_UNIT, ranks)
    return int(-(-config.vocab_size // unit) * unit)


def transformer_config(config: PretrainedConfig, args: TrainingSide, dtype: torch.dtype) -> TransformerConfig:
    """Returns megatron-core's configuration of the model under the flags.

    Raises:
        ConfigError: heads, layers or experts are not divisible by the number of ranks.
    """
    tp, pp, cp = (
        args.tensor_model_parallel_size,
        args.pipeline_model_parallel_size,
        args.context_parallel_size,
    )
    last, layers = args.decoder_last_pipeline_num_layers, config.num_hidden_layers
    if last is not None and last >= layers:
        raise ConfigError(
            f"--decoder-last-pipeline-num-layers {last} leaves none of the {layers} layers to other stages"
        )
    shared = getattr(config, "shared_expert_intermediate_size", tp)
    linear = [f"linear_num_{part}_heads" for part in ("key", "value")]
    for name, count, ranks, kind in (
        ("num_key_value_heads", config.num_key_value_heads, tp * cp, "tensor x context"),
        ("num_attention_heads", config.num_attention_heads, tp * cp, "tensor x context"),
        *((name, getattr(config, name, tp * cp), tp * cp, "tensor x context") for name in linear),
        ("intermediate_size", config.intermediate_size, tp, "tensor"),
        ("shared_expert_intermediate_size", shared, tp, "tensor"),
        ("num_hidden_layers", layers - (last or 0), pp - (0 if last is None else 1), "pipeline"),
    ):
        if count % ranks:
            raise ConfigError(
                f"the model's {name} ({count}) is not divisible by {ranks} {kind} parallel ranks; "
                f"change {FLAGS[kind]}"
            )
    return TransformerConfig(
        **_experts(config, args),
        **_hybrid(config),
        num_layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        ffn_hidden_size=config.intermediate_size,
        num_attention_heads=config.num_attention_heads,
        num_query_groups=config.num_key_value_heads,
        kv_channels=head_dim(config),
        normalization="RMSNorm",
        layernorm_epsilon=config.rms_norm_eps,
        activation_func=silu,
        gated_linear_unit=True,
        add_bias_linear=False,
        add_qkv_bias=config.model_type.startswith("qwen2"),
        qk_layernorm=config.model_type.startswith("qwen3"),
        hidden_dropout=0.0,
        attention_dropout=0.0,
        params_dtype=dtype,
        pipeline_dtype=dtype,
        bf16=dtype == torch.bfloat16,
        use_cpu_initialization=True,
        perform_initialization=False,
        **_fusions(args),
        sequence_parallel=args.sequence_parallel,
        tensor_model_parallel_size=tp,
        pipeline_model_parallel_size=pp,
        num_layers_in_last_pipeline_stage=last,
        context_parallel_size=cp,
    )


def _fusions(args: TrainingSide) -> dict[str, bool]:
    """Returns the settings for fused kernels."""
    compiled = fuses_activations(args)
    return {
        "masked_softmax_fusion": False,
        "gradient_accumulation_fusion": False,
        "bias_activation_fusion": compiled,
        "bias_dropout_fusion": compiled,
        "persist_layer_norm": fuses_norms(args),
    }


def _hybrid(config: PretrainedConfig) -> dict[str, Any]:
    """Returns the settings for gates and linear attention."""
    if config.model_type not in HYBRIDS:
        return {}
    names = "conv_kernel_dim", "key_head_dim", "value_head_dim", "num_key_heads", "num_value_heads"
    linear = {f"linear_{name}": getattr(config, f"linear_{name}") for name in names}
    return {"attention_output_gate": True, **linear}


def _experts(config: PretrainedConfig, args: TrainingSide) -> dict[str, Any]:
    """Returns the settings for experts."""
    ranks = args.expert_model_parallel_size
    if config.model_type not in MIXTURES:
        if ranks > 1:
            raise ConfigError(
                f"--expert-model-parallel-size {ranks} needs a model with experts, but "
                f"{config.model_type} has none; remove the flag"
            )
        return {}
    if args.use_lora and config.model_type == "qwen2_moe":
        raise ConfigError(
            "--use-lora: --train-backend megatron does not support adapters on the shared "
            "experts of qwen2_moe; use fsdp"
        )
    if config.num_experts % ranks:
        raise ConfigError(
            f"the model's num_experts ({config.num_experts}) is not divisible by {ranks} expert "
            "parallel ranks; change --expert-model-parallel-size"
        )
    return {
        "num_moe_experts": config.num_experts,
        "moe_router_topk": config.num_experts_per_tok,
        "moe_ffn_hidden_size": config.moe_intermediate_size,
        "moe_router_pre_softmax": not config.norm_topk_prob,
        "expert_tensor_parallel_size": 1,
        "moe_shared_expert_intermediate_size": getattr(config, "shared_expert_intermediate_size", None),
    }
