"""Tests that two processes (gloo) equal one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from tests.fakes.fixtures import MakeArgs, MakeSamples, MakeTrainer
from tests.fakes.forks import Forks

FAKES = Path(__file__).parents[3] / "fakes"
JOBS: dict[str, dict[str, Any]] = {
    "whitened": {
        "max_tokens_per_gpu": 25,
        "advantage_estimator": "reinforce_plus_plus",
        "normalize_advantages": True,
        "kl_coef": 0.1,
        "use_lora": True,
        "lora_rank": 4,
        "lora_alpha": 8.0,
        "lora_dropout": 0.0,
    },
    "ppo": {
        "max_tokens_per_gpu": 25,
        "advantage_estimator": "ppo",
        "lambd": 0.9,
        "kl_coef": 0.1,
        "ref_update_interval": 1,
    },
    "packed": {"max_tokens_per_gpu": 25, "balance_data": True},
    "steps_with_kl": {
        "global_batch_size": 2,
        "use_kl_loss": True,
        "kl_loss_coef": 0.1,
        "kl_loss_type": "k3",
        "calculate_per_token_loss": True,
    },
    "a_loss_on_logits_and_a_rank_without_samples": {
        "loss_type": "custom_loss",
        "custom_loss_function_path": f"{FAKES / 'example_loss_on_logits.py'}:custom_loss",
        "global_batch_size": 1,
    },
}
RANK = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
from slime.errors import TrainError
rank, folder = int(sys.argv[1]), sys.argv[2]
jobs, rollouts = pickle.load(open(folder + "/order", "rb"))
results = {}
for name, args in jobs.items():
    trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
    trainer.load()
    metrics = [trainer.train(i, samples) for i, samples in enumerate(rollouts)]
    checksum = trainer.export_weights(f"{folder}/{name}_weights", 1)
    trainer.save(len(rollouts) - 1, 1, 0)
    results[name] = metrics, checksum, trainer.log_probs(rollouts[0])
for sample in rollouts[0]:
    sample.reward = 3e38
try:
    trainer.train(9, rollouts[0])
except TrainError as error:
    results["refused"] = str(error)
pickle.dump(results, open(f"{folder}/result{rank}", "wb"))
trainer.close()
"""


def test_two_ranks_have_the_losses_and_weights_of_one(
    make_args: MakeArgs,
    make_trainer: MakeTrainer,
    make_samples: MakeSamples,
    fsdp_forks: Forks,
    tmp_path: Path,
) -> None:
    rollouts = [make_samples(5, seed=1), make_samples(3, seed=2)]
    rollouts[0][0].rollout_log_probs = [-2.0] * rollouts[0][0].response_length
    jobs = {name: make_args(**changes, save=str(tmp_path / name)) for name, changes in JOBS.items()}
    (tmp_path / "order").write_bytes(pickle.dumps((jobs, rollouts)))
    fsdp_forks.run(RANK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    results = [pickle.loads((tmp_path / f"result{rank}").read_bytes()) for rank in range(2)]

    assert all("rollout 9, step 0" in result["refused"] for result in results)
    for name, changes in JOBS.items():
        one = make_trainer(**changes)
        expected = [one.train(i, samples) for i, samples in enumerate(rollouts)]
        one.export_weights(str(tmp_path / "one"), 1)
        (metrics, checksum, log_probs), (other_metrics, other_checksum, _) = (r[name] for r in results)
        assert checksum == other_checksum
        for mine, others, single in zip(metrics, other_metrics, expected, strict=True):
            assert mine.keys() == others.keys() == single.keys()
            for key in mine.keys() - {"train_seconds"}:
                assert mine[key] == others[key], key
                assert mine[key] == pytest.approx(single[key], abs=1e-4, rel=1e-3), key
        for values, single_values in zip(log_probs, one.log_probs(rollouts[0]), strict=True):
            assert values == pytest.approx(single_values, abs=5e-3)
        ours = load_file(tmp_path / f"{name}_weights" / "model.safetensors")
        for key, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
            assert_close(ours[key], tensor, atol=1e-4, rtol=1e-3)
        resumed = make_trainer(**changes, save=str(tmp_path / name))
        assert resumed.load().rollout_id == 1
        assert resumed.export_weights(str(tmp_path / "resharded"), 2) == checksum
