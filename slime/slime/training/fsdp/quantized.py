"""QLoRA (Dettmers 2023): a 4-bit base (NF4, bitsandbytes) with adapters in full precision.

It is meant for GPUs; tests run it on a CPU, where bitsandbytes is slow.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from slime.errors import ConfigError


def four_bit_config() -> dict[str, Any]:
    """Returns transformers' configuration for loading linear modules in 4 bits, on this rank's GPU if it has
    one.

    Raises:
        ConfigError: bitsandbytes is not installed.
    """
    if importlib.util.find_spec("bitsandbytes") is None:
        raise ConfigError("--load-in-4bit needs bitsandbytes: pip install bitsandbytes")
    from transformers import BitsAndBytesConfig

    quantization = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    where = torch.cuda.current_device() if torch.cuda.is_available() else "cpu"
    return {"quantization_config": quantization, "device_map": {"": where}}


def keep_packing(model: nn.Module) -> None:
    """Disables repacking of 4-bit weights.

    On a CPU with bf16 instructions (AVX-512), bitsandbytes repacks a weight the first time it computes
    outside training: in place, with rounded scales, and only if the number of rows is a multiple of 32.
    Merely computing log-probs would thus change the weights.
    """
    module: Any
    for module in model.modules():
        if hasattr(module, "support_avx512bf16_for_cpu"):
            module.support_avx512bf16_for_cpu = False


def four_bit_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Returns the 4-bit weights; they are frozen, so every rank keeps them whole."""
    return {p for p in model.parameters() if hasattr(p, "quant_state")}


def dequantized(model: nn.Module, tensors: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    """Yields names and tensors of a state, with 4-bit weights expanded to the fp32 values used in
    computation."""
    quantized = {name: p for name, p in model.named_parameters() if hasattr(p, "quant_state")}
    if not quantized:
        yield from tensors
        return
    from bitsandbytes.functional import dequantize_4bit

    for name, tensor in tensors:
        if name in quantized:
            yield name, dequantize_4bit(quantized[name].data, quantized[name].quant_state).float()
        elif not any(name.startswith(f"{weight}.") for weight in quantized):
            yield name, tensor  # the other tensors are scales of 4-bit weights
