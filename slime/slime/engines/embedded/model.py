"""The served model, built from its configuration only; weights are installed separately."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from slime.engines.embedded.attention import NAME, RaggedBatch, ragged_attention
from slime.engines.embedded.images import StepImages, image_inputs
from slime.engines.embedded.packed import is_packed, use_packed
from slime.errors import ConfigError
from slime.utils.sdpa import without_cudnn
from slime.vision.models import PlacedImages, attention_of, model_class, sees

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class ModelError(ConfigError):
    """A folder cannot be served; the message is one line."""


@dataclass
class ServedModel:
    """A causal language model whose attention uses this engine's KV store.

    Attributes:
        tensors: every parameter and persistent buffer by checkpoint name; tied ones once.
        aliases: names of tied tensors -> the name in `tensors` (lm_head.weight -> model.embed_tokens.weight).
        placed: positions of image tokens, if the model supports images.
        packable: linear layers that can use a packed copy -> name of their weight.
        packed: packed copies of the installed weights (`packed.py`) by layer; other layers use their plain
            weight.
    """

    module: Any
    tensors: dict[str, Tensor]
    aliases: dict[str, str]
    max_positions: int
    vocab_size: int
    device: torch.device
    dtype: torch.dtype
    placed: PlacedImages | None = None
    packable: dict[str, str] = field(default_factory=dict)
    packed: dict[str, Tensor] = field(default_factory=dict)

    def forward(
        self,
        ids: list[int],
        positions: list[int],
        keep: list[int],
        batch: RaggedBatch,
        images: Sequence[StepImages] = (),
    ) -> Tensor:
        """Runs one step over the flattened tokens; returns logits [len(keep), V] at the offsets in `keep`."""
        inputs: dict[str, Any] = {
            "input_ids": torch.tensor([ids], device=self.device),
            "position_ids": torch.tensor([positions], device=self.device),
        }
        if self.placed is not None:
            inputs |= image_inputs(self.placed, inputs["position_ids"], images)
        out = self.module(
            **inputs,
            use_cache=False,
            logits_to_keep=torch.tensor(keep, device=self.device),
            ragged_batch=batch,
        )
        logits: Tensor = out.logits[0]
        return logits

    def move(self, device: torch.device) -> None:
        """Moves the weights; the model runs only while they are on its `device`."""
        for tensor in self.tensors.values():
            tensor.data = tensor.data.to(device)
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def import_model_code(folder: str) -> None:
    """Imports the modules that `build_model` needs, without running them.

    Raises:
        ModelError: the folder is not a model.
    """
    if not (Path(folder) / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json")
    from transformers import AutoConfig

    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        model_class(config)._model_mapping[type(config)]
    except (ValueError, OSError, KeyError) as error:
        raise ModelError(f"cannot read {folder}/config.json: {first_line(error)}") from error


def build_model(folder: str, device: str, dtype: str) -> ServedModel:
    """Builds the architecture of `folder`/config.json with uninitialised weights.

    Args:
        device: cpu, cuda or auto.
        dtype: float32, bfloat16, float16 or auto (float32 on a CPU, else the configuration's).

    Raises:
        ModelError: the folder is not a model, or the engine does not support its architecture.
    """
    if not (Path(folder) / "config.json").is_file():
        raise ModelError(f"{folder} is not a model folder: it has no config.json")
    from transformers import AttentionInterface, AutoConfig
    from transformers.initialization import no_init_weights

    without_cudnn()
    AttentionInterface.register(NAME, ragged_attention)
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except (ValueError, OSError) as error:
        raise ModelError(f"cannot read {folder}/config.json: {first_line(error)}") from error
    where = torch.device(
        "cuda" if device == "auto" and torch.cuda.is_available() else device.replace("auto", "cpu")
    )
    kind = _dtype(dtype, config, where)
    try:
        with no_init_weights():
            how = {"dtype": kind, "attn_implementation": attention_of(config, NAME)}
            module = model_class(config).from_config(config, **how)
    except ValueError as error:
        raise ModelError(f"{folder}: {first_line(error)}") from error
    text = config.get_text_config()
    positions = getattr(text, "max_position_embeddings", None)
    if positions is None:
        raise ModelError(f"{folder}: unsupported architecture: config.json has no max_position_embeddings")
    if getattr(text, "num_experts", None):
        raise ModelError(f"{folder}: the embedded engine does not support mixtures of experts; use SGLang")
    if getattr(module, "_is_stateful", False):
        raise ModelError(
            f"{folder}: the embedded engine does not support the recurrent state of a "
            f"{text.model_type}; use SGLang"
        )
    module.tie_weights()
    module.requires_grad_(False)
    module.eval().to(where)
    tensors, aliases = _named_once(module.state_dict(keep_vars=True))
    placed = PlacedImages(module) if sees(config) else None
    model = ServedModel(module, tensors, aliases, positions, text.vocab_size, where, kind, placed)
    if is_packed(where, kind):
        layers = use_packed(module, lambda name: model.packed.get(name))
        model.packable = {name: aliases.get(f"{name}.weight", f"{name}.weight") for name in layers}
    return model


def stop_token_ids(folder: str, token_id: Any) -> frozenset[int]:
    """Returns the end-of-sequence ids from generation_config.json, config.json and the tokenizer.

    Args:
        token_id: maps a token string to its id (or None).
    """
    all_ids: list[Any] = []
    for name in ("generation_config.json", "config.json"):
        ids = _read_json(Path(folder) / name).get("eos_token_id")
        all_ids.extend(ids if isinstance(ids, list) else [ids])
    token = _read_json(Path(folder) / "tokenizer_config.json").get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if text and token_id is not None:
        all_ids.append(token_id(text))
    return frozenset(int(item) for item in all_ids if item is not None)


def first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else {}


def _dtype(name: str, config: PretrainedConfig, device: torch.device) -> torch.dtype:
    if name == "auto":
        stored = getattr(config, "dtype", None)
        return stored if device.type != "cpu" and isinstance(stored, torch.dtype) else torch.float32
    kind: torch.dtype = getattr(torch, name)
    return kind


def _named_once(state: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, str]]:
    names: dict[int, str] = {}
    tensors: dict[str, Tensor] = {}
    aliases: dict[str, str] = {}
    for name, tensor in state.items():
        if id(tensor) in names:
            aliases[name] = names[id(tensor)]
        else:
            names[id(tensor)] = name
            tensors[name] = tensor
    return tensors, aliases
