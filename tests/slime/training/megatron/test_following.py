"""Tests samples that only follow their teacher, with a divided model: losses and weights equal those of one
process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer, RunRanks

JOBS: dict[str, dict[str, Any]] = {
    "tensor": {"tensor_model_parallel_size": 2, "log_probs_chunk_size": 3},
    "context_pipeline": {"context_parallel_size": 2, "pipeline_model_parallel_size": 2},
    "tensor_pipeline": {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 2,
        "log_probs_chunk_size": 5,
    },
    "data": {},
}
OF_FOUR = {"distill_topk": 4, "distill_subset_mode": "teacher"}
LOSSES: dict[str, dict[str, Any]] = {
    "tensor": {"loss_spec_path": "openclaw_combine.loss:topk_select", **OF_FOUR},
    "context_pipeline": {"loss_spec_path": "openclaw_opd.loss:opd_topk", **OF_FOUR},
    "tensor_pipeline": {"loss_spec_path": "openclaw_combine.loss:combine"},
    "data": {"loss_spec_path": "openclaw_combine.loss:topk_select", **OF_FOUR, "global_batch_size": 4},
}
RANKS = """
import pickle, sys
import torch
from slime.training.megatron import MegatronTrainer
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, samples = pickle.load(open(folder + "/order", "rb"))


def work(rank):
    torch.cuda.current_device = lambda: torch.device("cpu")
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        metrics = [trainer.train(i, samples) for i in range(2)]
        results[name] = metrics, trainer.export_weights(f"{folder}/{name}_weights", 1)
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


def batch(make_samples: MakeSamples) -> list[Any]:
    """Returns plain samples and some that follow in the same step; then a step of both kinds, and one that only
    follows."""
    found = [*make_samples(8), *make_samples(7, seed=2)]
    cases = ["dream", "anchor_bank", "dream"]
    for i, sample in enumerate(found):
        sample.teacher_tokens_candidates = [[5, 9, *sample.tokens]]
        sample.companion = max(0, (i - 6) // 3)
        sample.index = sample.group_index = i
        if i >= 6 and i not in (9, 10):
            sample.metadata, sample.reward, sample.divergence = {"case": cases[i % 3]}, None, "forward"
            sample.loss_weight = 0.5
    return found


def test_following_a_teacher_does_not_depend_on_the_parallelism(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    folders: dict[str, str],
    run_ranks: RunRanks,
    tmp_path: Path,
) -> None:
    samples = batch(make_samples)
    common: dict[str, Any] = {"teacher_source": "trainer", "teacher_guidance": 1.5, "lr": 1e-3}
    common |= {"hf_checkpoint": folders["qwen3"], "ref_load": folders["qwen3"]}
    jobs = {
        name: make_args(**common, **LOSSES[name], **sizes, train_backend="megatron")
        for name, sizes in JOBS.items()
    }
    results = run_ranks(RANKS, (jobs, samples))
    for name in JOBS:
        one = make_trainer(**common, **LOSSES[name])
        expected = [one.train(i, samples) for i in range(2)]
        one.export_weights(str(tmp_path / "one"), 1)
        assert {"dream_kl", "anchor_kl", "companion_loss", "forward_loss"} <= expected[0].keys()
        for metrics, checksum in (result[name] for result in results):
            assert checksum == results[0][name][1], name
            for mine, single in zip(metrics, expected, strict=True):
                assert mine.keys() == single.keys()
                for key in mine.keys() - {"train_seconds"}:
                    assert mine[key] == pytest.approx(single[key], abs=1e-4, rel=1e-3), (name, key)
        ours = load_file(tmp_path / f"{name}_weights" / "model.safetensors")
        for key, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
            assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)
