"""Loads a rank's policy or critic, adds adapters, and shards it with FSDP2, as the flags specify."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig
from transformers.initialization import no_init_weights
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP, Qwen2RMSNorm
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP, Qwen3RMSNorm
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeRMSNorm
from transformers.utils import logging as transformers_logging

from slime.errors import ConfigError
from slime.training.attention.kernels import attention_name
from slime.training.attention.linear import keep_exact, keep_sequences_apart
from slime.training.core.fused import compiled_swiglu, fuses_activations, fuses_norms, rms_norm
from slime.training.core.model import computing_dtype, serves_fp32
from slime.training.core.packing import PackedBatch
from slime.training.fsdp.lora import add_adapters
from slime.training.fsdp.model import PackedModel, equip
from slime.training.fsdp.quantized import four_bit_config, four_bit_parameters, keep_packing
from slime.utils.decoders import BESIDE_VISION, BODY, Source, join, language_part, sources_in_memory
from slime.vision.models import attention_of, model_class, seeing_config, sees
from slime.weights.files import WeightFiles
from slime.weights.folders import fp32_vectors
from slime.weights.index import INDEX, files_of_tensors

if TYPE_CHECKING:
    from transformers import PretrainedConfig, PreTrainedModel

    from slime.flags import Arguments
    from slime.flags.sides import TrainingSide

Model = TypeVar("Model", bound=nn.Module)


def load_model(folder: str, mesh: DeviceMesh, args: Arguments, trained: bool = True) -> PackedModel:
    """Returns the causal language model in `folder`, with adapters if it is trained and the flags request them.

    Args and Raises: see `load_as`.
    """

    def adapt(model: PreTrainedModel) -> PackedModel:
        adapted = add_adapters(model, args) if trained and args.use_lora else model
        return equip(adapted, args.log_probs_chunk_size, args.hf_checkpoint)

    return load_as(adapt, folder, mesh, args, trained)


def load_as(
    adapt: Callable[[Any], Model], folder: str, mesh: DeviceMesh, args: Arguments, trained: bool = True
) -> Model:
    """Returns `adapt` applied to the causal language model in `folder`, with weights in fp32, sharded over `mesh`.
    Each rank reads only its own rows.

    The model computes in bf16 on CUDA and with --bf16, else in fp32. Gradients are accumulated in fp32 over
    micro-batches and ranks. Within one backward pass they have the compute dtype, also those of a deferred head's
    chunks.

    Args:
        adapt: wraps the model before it is sharded.
        trained: gradients are needed; otherwise, the flags for frozen weights and activation checkpoints are ignored.

    Raises:
        ConfigError: transformers cannot load the model, or flags do not fit it.
    """
    transformers_logging.disable_progress_bar()
    shards, model = _load(folder, args)
    keep_sequences_apart(model, folder)
    switch_off_dropout(model)
    model.train()
    if trained:
        choose_trained(model, args.only_train_params_name_list, args.freeze_params_name_list)
        if args.gradient_checkpointing:
            model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    adapted = adapt(model)
    names = {} if shards is None else shards.names_in(adapted)
    exact = set[str]()
    in_bf16 = computing_dtype(args, mesh.device_type) == torch.bfloat16
    if shards is not None and in_bf16 and serves_fp32(args):
        exact = shards.stored_in_fp32(names)
    shard(adapted, mesh, args, keep_exact(adapted, exact, mesh))
    if shards is not None:
        shards.fill(adapted, names)
    return adapted


def _load(folder: str, args: TrainingSide) -> tuple[FolderShards | None, PreTrainedModel]:
    """Returns the model without weights and the source of its shards, or the complete fp32 model and None.

    The complete model is loaded only if the files need transformers' own loader.
    """
    how: dict[str, Any] = {"dtype": torch.float32}
    if args.load_in_4bit:
        how |= four_bit_config()
    try:
        config = seeing_config(
            language_part(AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False))
        )
        how["attn_implementation"] = attention_of(config, attention_name(args))
        shards = None if args.load_in_4bit else open_shards(config, folder, **how)
        if shards is not None:
            return shards, shards.model
        if (Path(folder) / INDEX).is_file():
            files_of_tensors(Path(folder))
        whole = model_class(config).from_pretrained(
            folder, config=config, local_files_only=True, trust_remote_code=False, **how
        )
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{folder} cannot be loaded as a causal language model: {reason}") from error
    keep_packing(whole)
    return None, whole


def choose_trained(model: nn.Module, only: list[str], frozen: list[str]) -> None:
    """Freezes the weights whose names match none of `only`, or match one of `frozen`.

    Both are regular expressions, matched anywhere in the name.

    Raises:
        ConfigError: an expression matches no weight, or no weight remains trainable.
    """
    names = [name for name, _ in model.named_parameters()]
    for flag, patterns in (("--only-train-params-name-list", only), ("--freeze-params-name-list", frozen)):
        for pattern in patterns:
            if not any(re.search(pattern, name) for name in names):
                raise ConfigError(f"{flag} {pattern} matches no weight; an example of a name is {names[0]}")
    for name, parameter in model.named_parameters():
        stays = any(re.search(pattern, name) for pattern in frozen)
        chosen = not only or any(re.search(pattern, name) for pattern in only)
        if parameter.is_floating_point():
            parameter.requires_grad_(chosen and not stays and parameter.requires_grad)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("--freeze-params-name-list freezes all weights; leave some trainable")


def shard(
    model: PreTrainedModel, mesh: DeviceMesh, args: TrainingSide, sharded: set[nn.Parameter] | None = None
) -> None:
    """Applies FSDP2 to every transformer block, then to modules that compute in fp32 (`in_fp32`), then to the rest.
    4-bit weights stay whole on every rank; parameters in `sharded` are already sharded."""
    dtype = computing_dtype(args, mesh.device_type)
    precision = MixedPrecisionPolicy(
        param_dtype=dtype if dtype == torch.bfloat16 else None, reduce_dtype=torch.float32
    )
    offload = CPUOffloadPolicy() if args.fsdp_cpu_offload else OffloadPolicy()
    how: dict[str, Any] = {"mesh": mesh, "mp_policy": precision, "offload_policy": offload}
    if mesh.size() == 1 and mesh.device_type == "cpu":
        # with one rank nothing is gathered: resharding would only cast all weights again
        how["reshard_after_forward"] = False
    if left_alone := four_bit_parameters(model) | (sharded or set()):
        how["ignored_params"] = left_alone
    blocks = set(model._no_split_modules or ())
    for module in model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, **how)
    for name in getattr(model, "in_fp32", ()):
        exact = MixedPrecisionPolicy(reduce_dtype=torch.float32)
        fully_shard(model.get_submodule(name), **how | {"mp_policy": exact})
    fully_shard(model, **how)
    model.offloads = args.fsdp_cpu_offload


def switch_off_dropout(model: nn.Module) -> None:
    """Sets dropout to 0, so that training computes the distribution that the engine sampled from."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (mypy takes it for a tensor)


SAVED, ORIGINAL = ".modules_to_save.default.", ".original_module."
"""Name parts: PEFT trains a copy of a module that is saved whole, and keeps the original."""


class FolderShards:
    """The sources of each tensor of a model in a model folder.

    Attributes:
        model: the model built from its configuration, without weights.
        sources: sources of its tensors, by name in the model.
    """

    def __init__(self, model: PreTrainedModel, sources: dict[str, Source], folder: str) -> None:
        self.model, self.sources, self.folder = model, sources, folder
        self.origin = {id(tensor): name for name, tensor in _stored_once(model).items()}

    @torch.no_grad()
    def fill(self, adapted: nn.Module, names: dict[str, str]) -> None:
        """Loads this rank's rows of every tensor.

        Args:
            adapted: the wrapped and sharded model.
            names: result of `names_in` before the model was sharded.

        Raises:
            ConfigError: a tensor is corrupt, or its shape does not match config.json.
        """
        state = adapted.state_dict()
        with WeightFiles(self.folder) as files:
            for name, plain in names.items():
                self._fill(state[name], self.sources[plain], files)

    def names_in(self, adapted: nn.Module) -> dict[str, str]:
        """Returns a mapping from names in the wrapper to names in the model, for all tensors of the folder."""
        state = _stored_once(adapted)
        names = {name: self.origin[id(x)] for name, x in state.items() if id(x) in self.origin}
        copies = {name: name.replace(SAVED, ORIGINAL) for name in state if SAVED in name}
        return names | {name: names[original] for name, original in copies.items() if original in names}

    def stored_in_fp32(self, names: dict[str, str]) -> set[str]:
        """Returns the wrapper names of vectors that are fp32 in the folder while other tensors are not."""
        stored = fp32_vectors(self.folder)
        return {name for name, plain in names.items() if str(self.sources[plain]) in stored}

    def _fill(self, target: Tensor, source: Source, files: WeightFiles) -> None:
        _check_shape(target, source, files)
        if not isinstance(target, DTensor):
            target.copy_(join(source, files.read))
            return
        mesh, local = target.device_mesh, target.to_local()
        first = mesh.get_local_rank() * -(-target.shape[0] // mesh.size())
        if not local.numel():
            return
        if isinstance(source, str):
            local.copy_(files.part(source, first, first + len(local)))
        else:
            for row, expert in zip(local, source[first : first + len(local)], strict=True):
                row.copy_(torch.cat([files.read(name) for name in expert]))


def open_shards(config: PretrainedConfig, folder: str, **how: Any) -> FolderShards | None:
    """Returns a model without weights and the sources of its weights.

    Returns None if only transformers can read the format of the files.

    Args:
        how: arguments of `from_config`.
    """
    try:
        with WeightFiles(folder) as files:
            sources = sources_in_memory(files.names(), sees(config))
            beside_vision = not sees(config) and any(name.startswith(BESIDE_VISION) for name in files.names())
    except ConfigError:
        return None
    with no_init_weights():
        model = model_class(config).from_config(config, **how)
    model.tie_weights()
    if not set(_stored_once(model)) <= set(sources):
        return None
    model.config.body = BESIDE_VISION if beside_vision else BODY
    return FolderShards(model, sources, folder)


def _stored_once(model: nn.Module) -> dict[str, Tensor]:
    """Returns parameters and persistent buffers by name; tied ones under their first name."""
    stored: dict[int, tuple[str, Tensor]] = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        stored.setdefault(id(tensor), (name, tensor))
    return dict(stored.values())


def _check_shape(target: Tensor, source: Source, files: WeightFiles) -> None:
    if isinstance(source, str):
        shape, named = files.shape(source), source
    else:
        each = [files.shape(name) for name in source[0]]
        shape, named = [len(source), sum(x[0] for x in each), *each[0][1:]], source[0][0]
    if shape != list(target.shape):
        raise ConfigError(
            f"{files.folder}: {named} has shape {shape}, but config.json requires {list(target.shape)}"
        )


class PackedValues(nn.Module):
    """The body of a causal language model with a linear output of size 1 instead of a vocabulary.

    With LoRA, the body has adapters, and the output is fully trained.

    Attributes:
        in_fp32: modules that always compute in fp32.

    Raises:
        ConfigError: the model supports images.
    """

    def __init__(self, model: PreTrainedModel, seed: int) -> None:
        super().__init__()
        if sees(model.config):
            raise ConfigError(
                "--advantage-estimator ppo does not support images, because the critic is text-only; use grpo"
            )
        self.body = model.get_decoder()
        self.config = model.config
        self._no_split_modules = model._no_split_modules
        self.in_fp32 = ("head",)
        width = model.config.get_text_config().hidden_size
        self.head = nn.Linear(width, 1, bias=False, dtype=torch.float32)
        generator = torch.Generator().manual_seed(seed)  # every rank draws the same values
        nn.init.normal_(self.head.weight, std=(width + 1) ** -0.5, generator=generator)

    def values(self, packed: PackedBatch) -> Tensor:
        """Returns fp32 values [T] at the targets of the pack, each predicted before its token."""
        values: Tensor = self(
            positions=packed.logit_positions,
            input_ids=packed.input_ids,
            position_ids=packed.position_ids,
            packed_layout=packed.layout,
        )
        return values

    def forward(self, positions: Tensor, **inputs: Any) -> Tensor:
        """Returns fp32 values [T] at `positions` [T] of the pack."""
        hidden = self.body(use_cache=False, **inputs).last_hidden_state[0, positions]
        values: Tensor = self.head(hidden.float()).squeeze(-1).clone()  # FSDP does not support views here
        return values


def load_critic(args: Arguments, mesh: DeviceMesh) -> PackedValues:
    """Returns the critic that the flags select. Raises ConfigError like `load_as`."""
    return load_as(partial(_value_model, args=args), args.critic_load or args.hf_checkpoint, mesh, args)


def _value_model(model: PreTrainedModel, args: TrainingSide) -> PackedValues:
    if args.use_lora:
        add_adapters(model, args)  # modifies the model in place
    return PackedValues(model, args.seed)


NORMS = (LlamaRMSNorm, Qwen2RMSNorm, Qwen2MoeRMSNorm, Qwen3RMSNorm, Qwen3MoeRMSNorm)
GATED = (LlamaMLP, Qwen2MLP, Qwen3MLP)


def fuse(model: nn.Module, args: TrainingSide) -> None:
    """Replaces the forward functions of known norms and feed-forward networks by fused ones, in place; others are
    unchanged."""
    for module in model.modules():
        if isinstance(module, NORMS) and fuses_norms(args):
            module.forward = MethodType(_norm, module)
        if isinstance(module, GATED) and fuses_activations(args) and module.config.hidden_act == "silu":
            module.forward = MethodType(_feed_forward, module)


def _norm(module: Any, hidden_states: Tensor) -> Tensor:
    return rms_norm(hidden_states, module.weight, module.variance_epsilon)


def _feed_forward(module: Any, x: Tensor) -> Tensor:
    output: Tensor = module.down_proj(compiled_swiglu()(module.gate_proj(x), module.up_proj(x)))
    return output
