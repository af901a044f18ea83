"""The configuration and the expected tensors of a Hugging Face model folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.core_model_loading import revert_weight_conversion

from slime.errors import ConfigError
from slime.utils.decoders import DENSE, MIXTURES
from slime.weights.checksum import LM_HEAD

if TYPE_CHECKING:
    from transformers import PretrainedConfig


def read_config(folder: Path) -> Any:
    """Returns the configuration in a folder.

    Raises:
        ConfigError: it is missing, or the architecture cannot be converted.
    """
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ConfigError(f"{folder} contains no configuration that transformers knows: {error}") from error
    if config.model_type not in DENSE + MIXTURES:
        known = ", ".join(DENSE + MIXTURES)
        raise ConfigError(
            f"{folder} is of type {config.model_type}; {known} can be converted. Training needs no conversion: it "
            "reads and writes Hugging Face folders"
        )
    return config


def stored_shapes(config: PretrainedConfig) -> dict[str, list[int]]:
    """Returns name and shape of every tensor in a folder of this model; a tied output head is omitted."""
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    stored = revert_weight_conversion(model, model.state_dict())
    return {
        name: list(tensor.shape)
        for name, tensor in stored.items()
        if name != LM_HEAD or not config.tie_word_embeddings
    }
