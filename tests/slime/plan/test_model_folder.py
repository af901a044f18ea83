"""Tests that an incomplete model folder is reported before anything starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from slime.plan.model_folder import INDEX, lacking
from tests import MODEL

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(MODEL, tmp_path / "model"))


def test_a_complete_folder_has_no_missing_files(folder: Path) -> None:
    assert lacking(folder) == ""


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json"])
def test_a_missing_file_is_reported(folder: Path, name: str) -> None:
    (folder / name).unlink()
    assert lacking(folder) == f"contains no {name}"


def test_missing_or_truncated_weights_are_reported(folder: Path) -> None:
    whole = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(whole[:-1])
    assert f"which has {len(whole) - 1} of its {len(whole)} bytes" in lacking(folder)
    (folder / WEIGHTS).write_bytes(whole[:100])
    assert "whose header is incomplete (100 bytes" in lacking(folder)
    (folder / WEIGHTS).write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n")
    assert "git-lfs" in lacking(folder)
    (folder / WEIGHTS).write_bytes((4).to_bytes(8, "little") + b"nope")
    assert "whose header cannot be read" in lacking(folder)
    (folder / WEIGHTS).unlink()
    assert lacking(folder) == "contains no *.safetensors"


def test_a_shard_that_the_index_names_must_be_there(folder: Path) -> None:
    index = {"weight_map": {"a": WEIGHTS, "b": "model-00002-of-00002.safetensors"}}
    (folder / INDEX).write_text(json.dumps(index))
    assert (
        lacking(folder)
        == f"lacks 1 of the files listed in {INDEX}, for example model-00002-of-00002.safetensors"
    )
