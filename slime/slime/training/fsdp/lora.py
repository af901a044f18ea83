"""LoRA adapters (PEFT) on the trainer's model: adds, disables, merges and stores them.

Merging makes copies, so the base never changes. Engines get base + scale * B A, computed from whole tensors
during export.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from peft.import_utils import is_bnb_4bit_available
from peft.tuners.lora import Linear as LoraLinear
from peft.tuners.lora import LoraLayer
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import ModulesToSaveWrapper
from torch import Tensor

from slime.errors import ConfigError
from slime.weights.folders import PEFT_PREFIX, write_adapter_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from slime.flags.sides import TrainingSide

LINEAR: tuple[type[LoraLayer], ...] = (LoraLinear,)
if is_bnb_4bit_available():
    from peft.tuners.lora.bnb import Linear4bit

    LINEAR = (LoraLinear, Linear4bit)
ADAPTER = "default"
TIED = ("embed_tokens", "lm_head")


def add_adapters(model: PreTrainedModel, args: TrainingSide) -> PeftModel:
    """Freezes `model` and adds adapters with an initial effect of zero. Every rank draws the same initial values.

    Raises:
        ConfigError: the named modules do not exist, are not linear, or are a tied head or embedding.
    """
    names = _names(args.lora_target_modules), _names(args.lora_modules_to_save)
    tied = [name for part in names for name in part or () if name in TIED]
    if tied and model.config.get_text_config().tie_word_embeddings:
        raise ConfigError(
            f"{tied[0]} is tied: input embedding and output head share its weights, so LoRA cannot train it alone"
        )
    config = LoraConfig(
        task_type="CAUSAL_LM",
        r=args.lora_rank,
        lora_alpha=args.lora_alpha,
        lora_dropout=args.lora_dropout,
        target_modules=names[0] or "all-linear",
        modules_to_save=names[1],
    )
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(
            args.seed
        )  # torch.manual_seed would also seed the GPUs, permanently
        try:
            wrapped = get_peft_model(model, config, adapter_name=ADAPTER)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"cannot add LoRA to this model: {str(error).splitlines()[0]}") from error
    for name, module in wrapped.named_modules():
        if isinstance(module, LoraLayer) and not isinstance(module, LINEAR):
            raise ConfigError(
                f"--lora-target-modules: {name.removeprefix(PEFT_PREFIX)} is not a linear module"
            )
    missing = [name for name in names[1] or () if not _has_saved(wrapped, name)]
    if missing:
        raise ConfigError(f"--lora-modules-to-save: the model has no module {missing[0]!r}")
    return wrapped


def _names(text: str | None) -> list[str] | None:
    return [name.strip() for name in text.split(",") if name.strip()] if text else None


def _has_saved(model: PreTrainedModel, name: str) -> bool:
    return any(
        isinstance(module, ModulesToSaveWrapper) and path.endswith(name)
        for path, module in model.named_modules()
    )


@contextmanager
def without_adapters(model: PreTrainedModel) -> Iterator[None]:
    """Disables the adapters inside the context.

    PEFT's own switch also disables the adapters' gradients, which FSDP would not restore.
    """
    switched = [m for m in model.modules() if isinstance(m, BaseTunerLayer | ModulesToSaveWrapper)]
    for module in switched:
        module._disable_adapters = True
    try:
        yield
    finally:
        for module in switched:
            module._disable_adapters = False


def merged(model: PreTrainedModel, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yields names and whole tensors of an equivalent model without adapters; does not change the inputs.

    Args:
        tensors: names and whole tensors of the wrapped model's state. The tensors of one module must follow each
            other, as in a state dict.
    """
    scales = {
        name: module.scaling[ADAPTER] for name, module in model.named_modules() if isinstance(module, LINEAR)
    }
    base: dict[str, Tensor] = {}
    factors: dict[str, Tensor] = {}
    for name, tensor in tensors:
        module, _, last = name.rpartition(f".lora_{'A' if '.lora_A.' in name else 'B'}.")
        if module in scales and last == f"{ADAPTER}.weight":
            other = factors.pop(module, None)
            if other is None:
                factors[module] = tensor
                continue
            down, up = (other, tensor) if ".lora_B." in name else (tensor, other)
            weight = base.pop(module)
            delta = scales[module] * (up.float() @ down.float())
            yield _plain(f"{module}.weight"), (weight.float() + delta).to(weight.dtype)
        elif name.endswith(".base_layer.weight") and name.removesuffix(".base_layer.weight") in scales:
            base[name.removesuffix(".base_layer.weight")] = tensor
        elif ".original_module." not in name:
            yield _plain(name), tensor


def merged_shapes(model: PreTrainedModel) -> dict[str, torch.Size]:
    """Returns names and shapes of the tensors that `merged` yields; without adapters, the model's own."""
    return {
        _plain(name): tensor.shape
        for name, tensor in model.state_dict().items()
        if ".lora_" not in name and ".original_module." not in name
    }


def _plain(name: str) -> str:
    """Returns a tensor's name in the model without adapters."""
    return (
        name.removeprefix(PEFT_PREFIX)
        .replace(".base_layer.", ".")
        .replace(f".modules_to_save.{ADAPTER}.", ".")
    )


def write_adapter(
    folder: Path, model: PreTrainedModel, weights: dict[str, Tensor], base: str
) -> dict[str, Tensor]:
    """Writes the adapter in PEFT's format. Returns its tensors under their names in the file.

    Args:
        weights: whole trained tensors, by name in the wrapped model.
        base: folder of the adapter's base model.
    """
    config = copy.copy(model.peft_config[ADAPTER])
    config.base_model_name_or_path, config.inference_mode = base, True
    stored = {
        name.replace(f".modules_to_save.{ADAPTER}.", ".").replace(f".{ADAPTER}.", "."): tensor
        for name, tensor in weights.items()
    }
    write_adapter_folder(folder, stored, config)
    return stored
