"""Tests the index of a model folder that comes from another person: no reader opens a file outside the folder."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from slime.engines.embedded import reading
from slime.engines.requests import WeightsError
from slime.errors import ConfigError, EngineError
from slime.plan.model_folder import lacking
from slime.weights.artifact import weight_files
from slime.weights.files import WeightFiles
from slime.weights.index import INDEX

OUTSIDE = "../other/model.safetensors"
NAMES = {
    "upwards": OUTSIDE,
    "upwards from a folder": f"inner/../{OUTSIDE}",
    "absolute": "{other}",
    "the folder itself": ".",
    "nothing": "",
    "a zero byte": "model.safetensors\0",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("model/inner", "other"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "model" / "config.json").write_text("{}")
    for name in ("model/tokenizer.json", "other/tokenizer.json"):
        (tmp_path / name).write_text("{}")
    save_file({"a": torch.ones(2)}, tmp_path / "other" / "model.safetensors")
    save_file({"b": torch.ones(2)}, tmp_path / "model" / "model-1.safetensors")
    return tmp_path / "model"


def _tensor(folder: Path) -> object:
    with WeightFiles(folder) as files:
        return files.read("a")


READERS: dict[str, Callable[[Path], object]] = {
    "trainer": _tensor,
    "client of engines": weight_files,
    "embedded engine": reading._files,
}


def write_index(folder: Path, name: str) -> None:
    weights = {"a": name.format(other=folder.parent / "other" / "model.safetensors")}
    (folder / INDEX).write_text(json.dumps({"weight_map": weights}))


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", NAMES)
def test_no_reader_opens_a_file_outside_the_folder(folder: Path, name: str, reader: str) -> None:
    write_index(folder, NAMES[name])
    with pytest.raises((ConfigError, EngineError, WeightsError), match="is not a file of the folder"):
        READERS[reader](folder)
    assert "is not a file of the folder" in lacking(folder)


@pytest.mark.parametrize("text", ["", "[]", '{"weight_map": [1]}', '{"weight_map": null}', "[" * 100_000])
def test_a_corrupt_index_is_reported(folder: Path, text: str) -> None:
    (folder / INDEX).write_text(text)
    for read in READERS.values():
        with pytest.raises((ConfigError, EngineError, WeightsError), match="cannot be read"):
            read(folder)


def test_files_of_the_folder_may_be_links_and_lie_deeper(folder: Path) -> None:
    """Caches of downloads store files elsewhere and link them."""
    (folder / "inner" / "x.safetensors").symlink_to(folder.parent / "other" / "model.safetensors")
    write_index(folder, "inner/x.safetensors")
    assert [path.name for path in weight_files(folder)] == ["x.safetensors"]
    assert torch.equal(_tensor(folder), torch.ones(2))  # type: ignore[arg-type]
