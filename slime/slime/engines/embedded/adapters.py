"""A weight version that contains only an adapter, merged into a copy of its base weights while loading.

The folder is in PEFT's format (`adapter_config.json`, `adapter_model.safetensors`); PEFT itself is not
needed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from slime.errors import EngineError
from slime.weights.checksum import legacy_checksum, weights_checksum

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
PREFIX = "base_model.model."
WITHOUT_EFFECT: tuple[Any, ...] = (None, False, {}, [], "none")
PLAIN = ("use_dora", "use_rslora", "rank_pattern", "alpha_pattern", "bias", "fan_in_fan_out")
"""PEFT settings that are not expressible as base + scale * B A."""


class AdapterError(EngineError):
    """An adapter cannot be merged."""


@dataclass(frozen=True)
class AdapterDelta:
    """The changes of an adapter to `base`, a model folder.

    Attributes:
        factors: A [r, in] and B [out, r] by the name of the weight [out, in] to which scale * B A is added.
        whole: weights that replace the base's, by name.
        tensors: tensors in the adapter's file.
    """

    base: str
    scale: float
    factors: dict[str, tuple[Tensor, Tensor]]
    whole: dict[str, Tensor]
    tensors: dict[str, Tensor]

    @property
    def checksum(self) -> str:
        """Returns the checksum of the tensors in the adapter's file."""
        return weights_checksum(self.tensors)

    @property
    def legacy_checksum(self) -> str:
        return legacy_checksum(self.tensors)

    @property
    def names(self) -> set[str]:
        """Returns the names of all changed weights."""
        return {*self.factors, *self.whole}

    def applied(self, name: str, weight: Tensor) -> Tensor:
        """Returns the base weight with the adapter merged, in fp32; unchanged if the adapter does not affect it."""
        if name in self.whole:
            return self.whole[name].to(weight.device)
        if name not in self.factors:
            return weight
        down, up = (part.to(weight.device).float() for part in self.factors[name])
        if (up.shape[0], down.shape[1]) != tuple(weight.shape):
            raise AdapterError(
                f"the shapes of the LoRA factors of {name} do not match the weight's shape "
                f"{list(weight.shape)}"
            )
        return weight.float() + self.scale * (up @ down)


def read_adapter(folder: str) -> AdapterDelta | None:
    """Returns the adapter in a folder; None if there is none.

    Raises:
        AdapterError: files are unreadable, the adapter is not plain LoRA, or one of two factors is missing.
    """
    path = Path(folder)
    if not (path / CONFIG).is_file():
        return None
    try:
        config: dict[str, Any] = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        base, scale = str(config["base_model_name_or_path"]), float(config["lora_alpha"]) / int(config["r"])
        tensors = load_file(path / WEIGHTS)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise AdapterError(f"cannot read the adapter in {folder}: {error!r}") from error
    other = [name for name in PLAIN if config.get(name) not in WITHOUT_EFFECT]
    if other:
        raise AdapterError(f"{folder}: {other[0]} {config[other[0]]} is not supported; use plain LoRA")
    down, up, whole = _sorted(tensors)
    if down.keys() != up.keys():
        raise AdapterError(f"{folder} lacks one of the two LoRA factors of {min(down.keys() ^ up.keys())}")
    return AdapterDelta(base, scale, {name: (down[name], up[name]) for name in down}, whole, tensors)


def _sorted(
    tensors: dict[str, Tensor],
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    """Returns A, B and whole weights by the base's weight names."""
    down, up, whole = {}, {}, {}
    for name, tensor in tensors.items():
        plain = name.removeprefix(PREFIX)
        if ".lora_A." in plain:
            down[plain.replace(".lora_A.", ".")] = tensor
        elif ".lora_B." in plain:
            up[plain.replace(".lora_B.", ".")] = tensor
        else:
            whole[plain] = tensor
    return down, up, whole
