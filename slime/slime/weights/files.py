"""Tensors of a Hugging Face folder by name, read one at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from slime.errors import ConfigError


class WeightFiles:
    """One safetensors file or several, open inside `with`.

    Raises:
        ConfigError: the folder holds none; at `read`, a tensor is missing or its file is broken.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        index = self.folder / "model.safetensors.index.json"
        if index.is_file():
            self.file_of: dict[str, str] = json.loads(index.read_text())["weight_map"]
        elif (self.folder / "model.safetensors").is_file():
            self.file_of = {}
        else:
            raise ConfigError(f"{folder} holds no model.safetensors; no other format is read")
        self.opened: dict[str, Any] = {}

    def __enter__(self) -> WeightFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.clear()

    def read(self, name: str) -> Tensor:
        file = self.file_of.get(name, "model.safetensors")
        try:
            if file not in self.opened:
                self.opened[file] = safe_open(str(self.folder / file), framework="pt")
            tensor: Tensor = self.opened[file].get_tensor(name)
        except Exception as error:  # safetensors raises its own class for a broken file or a missing name
            raise ConfigError(f"{self.folder} lacks {name}: {error}") from error
        return tensor
