"""Tests rejections of a weight folder before an engine loads it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from slime.errors import EngineError
from slime.weights.artifact import read_artifact

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_single_non_finite_value_is_detected(tmp_path: Path, dtype: torch.dtype, value: float) -> None:
    tensor = torch.ones(40, 25, dtype=dtype)
    tensor[31, 7] = value
    save_file({"good": torch.ones(3), "bad": tensor}, str(tmp_path / "model.safetensors"))
    with pytest.raises(EngineError, match="bad holds values that are not finite"):
        read_artifact(str(tmp_path))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_largest_finite_values_whole_numbers_and_empty_tensors_pass(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    ends = torch.tensor([torch.finfo(dtype).max, torch.finfo(dtype).min], dtype=dtype)
    tensors = {"ends": ends, "ids": torch.arange(4), "none": torch.empty(0, 3, dtype=dtype)}
    save_file(tensors, str(tmp_path / "model.safetensors"))
    assert set(read_artifact(str(tmp_path)).shapes) == set(tensors)
