"""Reads tensors of a Hugging Face folder by name, whole or in parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from slime.errors import ConfigError
from slime.weights.index import INDEX, files_of_tensors


class WeightFiles:
    """One or several safetensors files, open inside `with`.

    Raises:
        ConfigError: the folder has none, or its index names files elsewhere; or, on access, a tensor is missing or its
            file is corrupt.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if (self.folder / INDEX).is_file():
            try:
                self.file_of = files_of_tensors(self.folder)
            except ValueError as error:
                raise ConfigError(str(error)) from error
        elif (self.folder / "model.safetensors").is_file():
            self.file_of = {}
        else:
            raise ConfigError(f"{folder} contains no model.safetensors; no other format is read")
        self.opened: dict[str, Any] = {}

    def __enter__(self) -> WeightFiles:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.clear()

    def names(self) -> list[str]:
        """Returns the names of all tensors."""
        if self.file_of:
            return list(self.file_of)
        return list(self._open("model.safetensors").keys())

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._access(name, lambda file: file.get_tensor(name))
        return tensor

    def shape(self, name: str) -> list[int]:
        """Returns the shape of a tensor without reading it."""
        shape: list[int] = self._access(name, lambda file: file.get_slice(name).get_shape())
        return shape

    def dtype(self, name: str) -> str:
        """Returns the dtype of a tensor without reading it, in safetensors' names: F32, BF16, ..."""
        dtype: str = self._access(name, lambda file: file.get_slice(name).get_dtype())
        return dtype

    def part(self, name: str, start: int, stop: int, dim: int = 0) -> Tensor:
        """Returns rows `start` to `stop` of a tensor, or with `dim` 1 its columns; reads nothing else of it."""
        index = (slice(None),) * dim + (slice(start, stop),)
        tensor: Tensor = self._access(name, lambda file: file.get_slice(name)[index])
        return tensor

    def _access(self, name: str, read: Callable[[Any], Any]) -> Any:
        try:
            return read(self._open(self.file_of.get(name, "model.safetensors")))
        except Exception as error:  # safetensors raises its own class for a corrupt file or a missing name
            raise ConfigError(f"{self.folder} lacks {name}: {error}") from error

    def _open(self, file: str) -> Any:
        if file not in self.opened:
            self.opened[file] = safe_open(str(self.folder / file), framework="pt")
        return self.opened[file]
