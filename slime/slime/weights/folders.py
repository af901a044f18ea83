"""Folders for other programs: a Hugging Face model, or an adapter in PEFT's format."""

from __future__ import annotations

import shutil
from collections.abc import Container, Iterable
from pathlib import Path

import torch
from peft import LoraConfig
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

from slime.errors import ConfigError
from slime.weights.digests import FILE as DIGESTS
from slime.weights.digests import TensorDigest, write_digests
from slime.weights.files import WeightFiles
from slime.weights.mapped import WrittenMemories
from slime.weights.probe import FILE as PROBE
from slime.weights.tensor_file import TensorFile

WEIGHT_FILES = (".safetensors", ".bin", ".pt", ".pth", ".index.json")
OF_VERSIONS = (DIGESTS, PROBE)
"""Files that describe the weights in the same folder."""
PEFT_PREFIX = "base_model.model."
"""Prefix of the names of an adapter's tensors, before the name of the module."""


def stored_dtype(folder: str) -> torch.dtype | None:
    """Returns the dtype in the folder's configuration, or None."""
    dtype = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False).dtype
    return dtype if isinstance(dtype, torch.dtype) else None


def fp32_vectors(folder: str) -> frozenset[str]:
    """Returns the names of vectors that the folder stores in fp32 although its configuration has another dtype;
    engines keep some of these in fp32 (A_log of Qwen3.5). Empty if its files are not safetensors."""
    if stored_dtype(folder) in (None, torch.float32):
        return frozenset()
    try:
        with WeightFiles(folder) as files:
            return frozenset(
                name for name in files.names() if files.dtype(name) == "F32" and len(files.shape(name)) == 1
            )
    except ConfigError:
        return frozenset()


def copy_model_files(folder: Path, source: str) -> None:
    """Copies the configuration and tokenizer files of a Hugging Face folder, without its weights and their
    description."""
    for file in sorted(Path(source).iterdir()):
        if file.is_file() and file.name not in OF_VERSIONS and not file.name.endswith(WEIGHT_FILES):
            shutil.copyfile(file, folder / file.name)


def write_weights(
    folder: Path,
    weights: Iterable[tuple[str, Tensor]],
    count: int,
    dtype: torch.dtype | None,
    memories: WrittenMemories | None = None,
    in_fp32: Container[str] = (),
) -> dict[str, TensorDigest]:
    """Writes tensors in the order of `weights`, and their digests, to the folder. Returns the digests by name.

    Args:
        dtype: dtype to write; None: each tensor's own.
        count: approximate number of tensors.
        memories: mapped files, if the folder is a slot in shared memory.
        in_fp32: names of the tensors that are always written in fp32.

    Raises:
        NotFiniteError: a value is not finite.
    """
    path = folder / "model.safetensors"
    with TensorFile(path, count, None if memories is None else memories.of(path)) as file:
        for name, tensor in weights:
            file.add(name, tensor, torch.float32 if name in in_fp32 else dtype)
        digests = file.finish()
    write_digests(folder, digests)
    return digests


def write_adapter_folder(folder: Path, weights: dict[str, Tensor], config: LoraConfig) -> None:
    """Writes an adapter in the format of `PeftModel.from_pretrained`, `merge_lora_adapter.py` and the embedded
    engine."""
    config.save_pretrained(str(folder))
    save_file(weights, str(folder / "adapter_model.safetensors"), metadata={"format": "pt"})
