"""Tests the dtype of an embedded engine on the CPU: that of training, and that of an existing run."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from slime.training.export import Exporting
from slime.weights.cpu_dtype import dtype_on_cpu, dtypes_of
from slime.weights.versions import WeightVersion, write_live


@pytest.mark.parametrize(("bf16", "served"), [(True, "bfloat16"), (False, "float32")])
def test_a_new_run_serves_the_dtype_of_training(tmp_path: Path, bf16: bool, served: str) -> None:
    assert dtype_on_cpu(bf16, tmp_path) == served
    assert dtype_on_cpu(bf16, tmp_path / "not there") == served


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_an_existing_run_keeps_the_dtype_of_its_versions(tmp_path: Path, dtype: torch.dtype) -> None:
    folder = tmp_path / "weights" / "v000003"
    folder.mkdir(parents=True)
    tensors = {"model.norm.weight": torch.ones(4), "lm_head.weight": torch.ones(4, 4, dtype=dtype)}
    save_file(tensors, folder / "model.safetensors")
    write_live(tmp_path, WeightVersion(3, str(folder), "xxh3:1"))
    served = str(dtype).removeprefix("torch.")
    assert [dtype_on_cpu(bf16, tmp_path) for bf16 in (True, False)] == [served, served]


@pytest.mark.parametrize(("address", "leaves"), [([], torch.bfloat16), (["127.0.0.1:30010"], torch.float32)])
def test_versions_for_external_engines_are_exported_in_fp32(address: list[str], leaves: torch.dtype) -> None:
    args = SimpleNamespace(
        rollout_num_gpus=0, rollout_backend="embedded", rollout_external_engine_addrs=address
    )
    rank: Any = SimpleNamespace(args=args, _dtype_on_cpu=torch.bfloat16)
    assert Exporting._served_dtype(rank) == leaves


def test_a_live_adapter_or_missing_folder_does_not_determine_the_dtype(tmp_path: Path) -> None:
    save_file({"a.lora_A.weight": torch.ones(2, 2)}, tmp_path / "adapter_model.safetensors")
    assert dtypes_of(tmp_path) == dtypes_of(tmp_path / "gone") == set()
