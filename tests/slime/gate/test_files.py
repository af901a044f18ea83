"""Tests stage a: files that must never go live are detected before an engine loads them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from slime.gate.files import measure_files, squares
from slime.gate.limits import largest_change
from slime.weights.update import CandidateRejected

Spoil = Callable[[dict[str, Tensor]], object]


def write(folder: Path, tensors: dict[str, Tensor]) -> str:
    folder.mkdir(exist_ok=True)
    save_file(tensors, str(folder / "model.safetensors"))
    return str(folder)


@pytest.fixture
def live(tmp_path: Path) -> str:
    torch.manual_seed(0)
    return write(tmp_path / "live", {"a": torch.randn(8, 4), "b": torch.randn(5)})


def test_the_change_is_the_relative_norm_of_the_difference_to_the_live_weights(
    tmp_path: Path, live: str
) -> None:
    tensors = load_file(f"{live}/model.safetensors")
    flat = torch.cat([tensor.flatten() for tensor in tensors.values()])
    candidate = write(tmp_path / "new", {name: 1.01 * tensor for name, tensor in tensors.items()})
    assert measure_files(candidate, live)["change"] == pytest.approx(0.01, rel=1e-4)
    moved = {**tensors, "b": tensors["b"] + 1}
    assert measure_files(write(tmp_path / "new", moved), live)["change"] == pytest.approx(
        5**0.5 / float(flat.norm()), rel=1e-5
    )


def test_the_change_of_large_tensors_is_exact_and_fast() -> None:
    """The target for 4e9 numbers is 8 seconds of one processor: 2 ns a number. Sums in fp64 over whole tensors take
    22 to 39 s."""
    torch.manual_seed(0)
    before = (torch.randn(3, 2**23) * 0.02).bfloat16()
    now = before + (torch.randn(before.shape) * 1e-4).bfloat16()
    began = time.process_time()
    moved, size = squares(now, before)
    spent = time.process_time() - began
    assert size == pytest.approx(float(before.double().square().sum()), rel=1e-4)
    assert moved == pytest.approx(float((now.double() - before.double()).square().sum()), rel=1e-4)
    assert spent < 10e-9 * before.numel(), f"{1e9 * spent / before.numel():.1f} ns a number"


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (
            lambda tensors: tensors["a"].view(-1)[3].fill_(float("nan")),
            "a contains values that are not finite",
        ),
        (lambda tensors: tensors["b"][0].fill_(float("inf")), "b contains values that are not finite"),
        (lambda tensors: tensors.update(b=tensors["b"].view(5, 1)), r"b is float32 \[5, 1\]"),
        (
            lambda tensors: tensors.update(b=tensors["b"].half()),
            r"b is float16 \[5\], but the live weights have",
        ),
        (lambda tensors: tensors.pop("b"), "lacks 1 tensors: b"),
        (lambda tensors: tensors.update(c=torch.ones(1)), "has 1 additional tensors: c"),
    ],
)
def test_a_corrupt_tensor_is_reported(tmp_path: Path, live: str, spoil: Spoil, message: str) -> None:
    tensors = load_file(f"{live}/model.safetensors")
    spoil(tensors)
    with pytest.raises(CandidateRejected, match=message) as rejected:
        measure_files(write(tmp_path / "new", tensors), live)
    assert rejected.value.stage == "files"


@pytest.mark.parametrize("kept", [0, 20, 200])
def test_a_file_that_is_cut_off_is_rejected(tmp_path: Path, live: str, kept: int) -> None:
    candidate = write(tmp_path / "new", load_file(f"{live}/model.safetensors"))
    file = Path(candidate) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(CandidateRejected, match="cannot read"):
        measure_files(candidate, live)


def test_an_adapter_is_not_compared_with_a_full_model(tmp_path: Path, live: str) -> None:
    candidate = write(tmp_path / "new", {"lora": torch.ones(2)})
    (tmp_path / "new" / "adapter_config.json").write_text("{}")
    assert measure_files(candidate, live) == {}
    broken = write(tmp_path / "new", {"lora": torch.tensor([1.0, float("nan")])})
    for other in (live, str(tmp_path / "gone")):
        with pytest.raises(CandidateRejected, match="lora contains values that are not finite"):
            measure_files(broken, other)


def test_the_limit_of_a_change_adapts_to_accepted_changes() -> None:
    assert largest_change([], 0.1) == 0.1
    assert largest_change([0.001] * 4, 0.1) == 0.1, "too few to know"
    assert largest_change([0.001] * 5, 0.1) == pytest.approx(0.004)
    assert largest_change([0.0] * 5 + [0.001] * 4, 0.1) == 0.1, "updates that changed nothing do not count"
    assert largest_change([0.05] * 9, 0.1) == 0.1
    assert largest_change([0.05] + [0.001] * 32, 0.1) == pytest.approx(0.004), "old ones are forgotten"
