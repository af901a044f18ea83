"""Tests that a probe accepts every correct program, and no other model."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from slime.weights.probe import LENGTH, TEXT_LENGTH, Probe, probe_ids
from tests import ROOT

TINY = ROOT / "openclaw-test" / "tiny_claw" / "model"


def test_the_ids_are_of_a_text_if_the_folder_has_a_tokenizer(tmp_path: Path) -> None:
    shutil.copy(TINY / "tokenizer.json", tmp_path)
    ids, of_text = probe_ids(tmp_path, 100_000)
    assert of_text and len(ids) == TEXT_LENGTH and ids == probe_ids(tmp_path, 100_000)[0]
    ids, of_text = probe_ids(tmp_path, max(ids))
    assert not of_text and len(ids) == LENGTH, "the model has fewer ids than the tokenizer"
    (tmp_path / "tokenizer.json").unlink()
    assert probe_ids(tmp_path, 320) == probe_ids(tmp_path / "nothing", 320)


def of_bfloat16(log_probs: list[float], **fields: bool) -> Probe:
    return Probe(list(range(len(log_probs) + 1)), log_probs, "bfloat16", **fields)


def noisy(rng: random.Random, size: float) -> list[float]:
    return [-3.0 + rng.gauss(0, size) for _ in range(63)]


def test_a_difference_on_one_id_is_accepted() -> None:
    rng = random.Random(0)
    probe = of_bfloat16([-3.0] * 63, of_text=True)
    assert probe.difference(noisy(rng, 0.05), "bfloat16") is None
    assert probe.difference([-3.0] * 62 + [-15.0], "bfloat16") is None, "its mean is 0.19, its median 0"
    found = probe.difference(noisy(rng, 1.0), "bfloat16")
    assert found is not None and "on average (0.1 is allowed)" in found and "trainer -3.00, -3.00" in found


@pytest.mark.parametrize("answer", [[-3.0] * 5, [float("nan")] * 63])
def test_an_invalid_probe_answer_is_rejected(answer: list[float]) -> None:
    assert "log-probs" in str(of_bfloat16([-3.0] * 63, of_text=True).difference(answer, "bfloat16"))


def test_the_coarser_dtypes_tolerance_applies_and_random_ids_have_a_larger_one() -> None:
    text, ids = of_bfloat16([-3.0], of_text=True), of_bfloat16([-3.0])
    assert (text.allowed("float32"), text.allowed(None), text.allowed("auto")) == (0.1, 0.1, 0.1)
    assert ids.allowed("float32") == 0.25
    exact = Probe([1, 2], [-3.0], "float32", of_text=True)
    assert (exact.allowed("float32"), exact.allowed("float16"), exact.allowed("auto")) == (2e-3, 0.05, 0.1)
    assert Probe([1, 2], [-3.0], "float32", limit=0.3).allowed(None) == 0.3
