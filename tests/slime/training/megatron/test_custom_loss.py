"""Tests a custom loss on logits with megatron-core: it gets those of the whole vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer, RunRanks

LIKELIHOOD = '''
import torch
from slime.losses import get_log_probs_and_entropy

def custom_loss(args, batch, logits, sum_of_sample_mean):
    """Weighted likelihood and entropy, written with slime's own helpers."""
    layout = {name: batch[name] for name in ("unconcat_tokens", "total_lengths", "response_lengths")}
    _, found = get_log_probs_and_entropy(logits, args=args, with_entropy=True, **layout)
    entropy = sum_of_sample_mean(torch.cat(found["entropy"]))
    wide = logits.shape[-1] * sum_of_sample_mean(torch.ones_like(torch.cat(found["entropy"])))
    weighted = torch.cat(found["log_probs"]) * torch.cat(batch["advantages"])
    return -sum_of_sample_mean(weighted) - 0.1 * entropy, {"entropy": entropy, "vocabulary": wide}
'''
DIVISIONS: dict[str, dict[str, Any]] = {
    "tensor_sequence_data": {"tensor_model_parallel_size": 2, "sequence_parallel": True},
    "tensor_pipeline": {"tensor_model_parallel_size": 2, "pipeline_model_parallel_size": 2},
    "context_data": {"context_parallel_size": 2},
}
RANKS = """
import pickle, sys
import torch
from slime.training.megatron import MegatronTrainer
folder = sys.argv[1]
torch.set_num_threads(1)
jobs, rollouts = pickle.load(open(folder + "/order", "rb"))


def work(rank):
    # megatron-core gathers sequence-parallel tensors on "the current CUDA device".
    torch.cuda.current_device = lambda: torch.device("cpu")
    results = {}
    for name, args in jobs.items():
        trainer = MegatronTrainer(args, rank, 4, init_method=f"file://{folder}/meet")
        results[name] = [trainer.train(i, samples) for i, samples in enumerate(rollouts)]
    pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
    trainer.close()
"""


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "likelihood.py").write_text(LIKELIHOOD)
    path = f"{tmp_path / 'likelihood.py'}:custom_loss"
    return {"loss_type": "custom_loss", "custom_loss_function_path": path, "lr": 1e-3, "global_batch_size": 4}


def assert_alike(ours: list[dict[str, float]], theirs: list[dict[str, float]], tolerance: float) -> None:
    for mine, single in zip(ours, theirs, strict=True):
        assert mine.keys() == single.keys() and mine["vocabulary"] == pytest.approx(63)
        for key in mine.keys() - {"train_seconds"}:
            assert mine[key] == pytest.approx(single[key], abs=tolerance, rel=tolerance), key


def test_a_loss_on_logits_gives_the_metrics_of_fsdp(
    make_trainer: MakeTrainer, make_samples: MakeSamples, flags: dict[str, Any]
) -> None:
    found = {}
    for backend in ("fsdp", "megatron"):
        trainer = make_trainer(train_backend=backend, **flags)
        found[backend] = [trainer.train(i, make_samples(6, seed=i)) for i in range(3)]
    assert_alike(found["megatron"], found["fsdp"], 1e-4)


def test_a_loss_on_logits_does_not_depend_on_the_parallelism(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    flags: dict[str, Any],
    run_ranks: RunRanks,
) -> None:
    """The second rollout leaves a replica without a sample in one of its steps."""
    rollouts = [make_samples(8), make_samples(5, seed=2)]
    jobs = {name: make_args(**flags, **sizes) for name, sizes in DIVISIONS.items()}
    results = run_ranks(RANKS, (jobs, rollouts))
    one = make_trainer(**flags)
    expected = [one.train(i, samples) for i, samples in enumerate(rollouts)]
    for name in DIVISIONS:
        for result in results:
            assert_alike(result[name], expected, 1e-3)
            assert result[name][0]["grad_norm"] == pytest.approx(expected[0]["grad_norm"], rel=1e-5), name
