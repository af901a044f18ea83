"""Folders that others read: a Hugging Face model, an adapter in PEFT's format."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".index.json")
PEFT_PREFIX = "base_model.model."
"""What the names of an adapter's tensors begin with, before that of the module that they belong to."""


def stored_dtype(folder: str) -> torch.dtype | None:
    """The dtype that the folder's configuration names, or None if it names none."""
    dtype = AutoConfig.from_pretrained(folder, local_files_only=True).dtype
    return dtype if isinstance(dtype, torch.dtype) else None


def write_model_folder(folder: Path, weights: dict[str, Tensor], source: str) -> None:
    """A Hugging Face folder: `weights`, and the configuration and tokenizer files of the `source` folder."""
    for file in sorted(Path(source).iterdir()):
        if file.is_file() and not file.name.endswith(WEIGHT_FILES):
            shutil.copyfile(file, folder / file.name)
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})


def write_adapter_folder(folder: Path, weights: dict[str, Tensor], config: LoraConfig) -> None:
    """An adapter as `PeftModel.from_pretrained`, `merge_lora_adapter.py` and the embedded engine read it."""
    config.save_pretrained(str(folder))
    save_file(weights, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
