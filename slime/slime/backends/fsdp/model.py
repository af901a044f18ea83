"""The Hugging Face model under FSDP2: loading, sharding, running it on a pack, gathering its weights."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging as transformers_logging

from slime.backends.fsdp.attention import NAME as ATTENTION
from slime.backends.fsdp.lora import merged
from slime.backends.fsdp.packing import PackedBatch
from slime.errors import ConfigError
from slime.losses import DenseDistribution
from slime.utils.checksum import LM_HEAD

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".index.json")


def load_model(
    folder: str,
    mesh: DeviceMesh,
    gradient_checkpointing: bool = False,
    adapt: Callable[[Any], Any] = lambda model: model,
) -> Any:
    """The causal language model in `folder`, in fp32, sharded over `mesh`; on CUDA it computes in bf16.

    Args:
        adapt: wraps the model before it is sharded.

    Raises:
        ConfigError: the folder holds no model that transformers can load.
    """
    transformers_logging.disable_progress_bar()
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation=ATTENTION, local_files_only=True
        )
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"{folder} cannot be loaded as a causal language model: {reason}") from error
    switch_off_dropout(model)
    model.train()
    if gradient_checkpointing:
        model.activation_checkpointing_enable(activation_checkpointing_kwargs={"use_reentrant": False})
    model = adapt(model)
    shard(model, mesh)
    return model


def stored_dtype(folder: str) -> torch.dtype | None:
    """The dtype that the folder's configuration names, or None if it names none."""
    dtype = AutoConfig.from_pretrained(folder, local_files_only=True).dtype
    return dtype if isinstance(dtype, torch.dtype) else None


def shard(model: Any, mesh: DeviceMesh) -> None:
    """Applies FSDP2 to every transformer block, then to what is left."""
    on_gpu = mesh.device_type == "cuda"
    precision = MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if on_gpu else None, reduce_dtype=torch.float32
    )
    blocks = set(model._no_split_modules or ())
    for module in model.modules():
        if type(module).__name__ in blocks:
            fully_shard(module, mesh=mesh, mp_policy=precision)
    fully_shard(model, mesh=mesh, mp_policy=precision)


def switch_off_dropout(model: nn.Module) -> None:
    """Training must see the distribution that the engine sampled from."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 (mypy takes it for a tensor)


def distribution(model: Any, packed: PackedBatch) -> DenseDistribution:
    """The model's distribution of every target [T] of the pack, at the temperature of its sample.

    Logits are computed at these positions only.
    """
    return DenseDistribution(_logits(model, packed, packed.logit_positions)[0], packed.temperatures)


def all_logits(model: Any, packed: PackedBatch, temperatures: Tensor) -> Tensor:
    """fp32 logits [1, N, V] of every token of the pack, divided by `temperatures` [N]."""
    return _logits(model, packed, 0).float() / temperatures[:, None]


def _logits(model: Any, packed: PackedBatch, keep: Tensor | int) -> Tensor:
    output = model(
        input_ids=packed.input_ids,
        position_ids=packed.position_ids,
        use_cache=False,
        logits_to_keep=keep,
        packed_layout=packed.layout,
    )
    logits: Tensor = output.logits
    return logits


def gather_weights(model: Any, dtype: torch.dtype | None, keep: bool) -> dict[str, Tensor]:
    """All weights as whole CPU tensors in `dtype` (None: as they are); a tied output head is left out.

    Adapters are merged out of place. Every rank must call this; the ranks without `keep` return nothing.
    """
    tied = model.config.get_text_config().tie_word_embeddings
    whole = whole_tensors(model.state_dict())
    if not keep:
        for _ in whole:
            pass
        return {}
    weights: dict[str, Tensor] = {}
    for name, tensor in merged(model, whole) if isinstance(model, PeftModel) else whole:
        if name == LM_HEAD and tied:
            continue
        cast = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
        weights[name] = tensor.detach().to("cpu", cast, copy=True).contiguous()
    return weights


def gather_trained(model: Any, keep: bool) -> dict[str, Tensor]:
    """The trainable weights as whole CPU tensors, on the ranks with `keep`. Every rank must call this."""
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    whole = {name: tensor.detach().cpu() for name, tensor in whole_tensors(trained)}
    return whole if keep else {}


def whole_tensors(tensors: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Names and whole tensors, one after the other. Every rank must take all of them."""
    for name, tensor in tensors.items():
        yield name, tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write_model_folder(folder: Path, weights: dict[str, Tensor], source: str) -> None:
    """A Hugging Face folder: `weights`, and the configuration and tokenizer files of the `source` folder."""
    for file in sorted(Path(source).iterdir()):
        if file.is_file() and not file.name.endswith(WEIGHT_FILES):
            shutil.copyfile(file, folder / file.name)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
