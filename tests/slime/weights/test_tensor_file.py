"""Tests weight files written tensor by tensor in one pass: reading by other libraries, verification, rejections."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from slime.errors import EngineError
from slime.weights.artifact import holds, read_artifact
from slime.weights.checksum import checksum_of, legacy_checksum, weights_checksum
from slime.weights.digests import PIECE, NotFiniteError, digest_tensor, digest_tensors, read_digests
from slime.weights.folders import write_weights
from slime.weights.tensor_file import HEADER_BYTES, TensorFile
from slime.weights.versions import is_legacy_checksum

LONG = PIECE * 3 + 7


def some_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        "long": torch.randn(LONG, generator=generator),
        "matrix": torch.randn(40, 30, generator=generator).T,
        "ids": torch.arange(5),
        "none": torch.empty(0, 4),
    }


def write(
    path: Path, weights: dict[str, Tensor], count: int, dtype: torch.dtype | None = None
) -> dict[str, Tensor]:
    with TensorFile(path, count) as file:
        for name, tensor in weights.items():
            file.add(name, tensor, dtype)
        file.finish()
    return load_file(path)


def test_one_pass_casts_and_writes_like_torch_and_computes_digests(tmp_path: Path) -> None:
    weights = some_weights()
    digests = write_weights(tmp_path, weights.items(), len(weights), torch.bfloat16)
    stored = load_file(tmp_path / "model.safetensors")
    assert {name: tensor.dtype for name, tensor in stored.items()} == {
        name: torch.int64 if name == "ids" else torch.bfloat16 for name in weights
    }
    for name, tensor in weights.items():
        assert torch.equal(stored[name], tensor.to(stored[name].dtype)), name
    assert digests == digest_tensors(stored) == read_digests(tmp_path)
    assert checksum_of(digests) == weights_checksum(stored) == read_artifact(str(tmp_path)).checksum


def test_an_existing_file_is_overwritten_in_the_same_memory(tmp_path: Path) -> None:
    path, weights = tmp_path / "model.safetensors", some_weights()
    write(path, weights, 4)
    before = os.stat(path).st_ino
    assert torch.equal(write(path, {"long": -weights["long"]}, 1)["long"], -weights["long"])
    assert os.stat(path).st_ino == before


@pytest.mark.parametrize("length", [3, HEADER_BYTES * 40])
def test_tensors_beyond_the_reserved_header_are_still_written(tmp_path: Path, length: int) -> None:
    weights = {"odd": torch.ones(3, dtype=torch.bfloat16), "n" * length: torch.arange(5.0)}
    stored = write(tmp_path / "model.safetensors", weights, 2)
    assert stored.keys() == weights.keys()
    assert all(torch.equal(stored[name], tensor) for name, tensor in weights.items())


def test_a_value_that_the_served_dtype_cannot_hold_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError, match="big holds values that are not finite"):
        write_weights(tmp_path, [("big", torch.full((1 << 20,), 1e6))], 1, torch.float16)


def test_the_digest_covers_all_pieces_in_order() -> None:
    base = torch.zeros(LONG)
    seen = {digest_tensor(base).digest}
    for place in (0, PIECE - 1, PIECE, LONG - 1):
        changed = base.clone()
        changed[place] = 1
        seen.add(digest_tensor(changed).digest)
    assert len(seen) == 5


def test_a_folder_of_an_earlier_release_is_verified_by_its_own_checksum(tmp_path: Path) -> None:
    weights = {"model.embed_tokens.weight": torch.ones(3, 2), "lm_head.weight": torch.ones(3, 2)}
    save_file(weights, str(tmp_path / "model.safetensors"))
    before = legacy_checksum(weights)
    assert before == legacy_checksum({"model.embed_tokens.weight": torch.ones(3, 2)})
    assert is_legacy_checksum(before) and not is_legacy_checksum(weights_checksum(weights))
    assert holds(str(tmp_path), before) and not holds(str(tmp_path), "0" * 64)
    assert holds(str(tmp_path), weights_checksum(weights))


def test_invalid_digests_are_rejected(tmp_path: Path) -> None:
    assert read_digests(tmp_path) is None
    (tmp_path / "digests.json").write_text(json.dumps({"tensors": {"a": ["float32"]}}))
    with pytest.raises(EngineError, match="contains no digests"):
        read_digests(tmp_path)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.float8_e5m2], ids=str
)
def test_only_non_finite_values_are_rejected_at_any_position_and_sign(
    dtype: torch.dtype,
) -> None:
    limits = torch.finfo(dtype)
    largest = (
        torch.tensor([limits.max, limits.min, -0.0, limits.tiny, -limits.tiny], dtype=torch.float64)
        .to(dtype)
        .repeat(7)
    )
    digest_tensor(largest)
    for bad in (float("inf"), float("-inf"), float("nan"), -float("nan")):
        spoilt = largest.clone()
        spoilt[17] = bad
        with pytest.raises(NotFiniteError):
            digest_tensor(spoilt)
