"""Two processes (gloo) do what one does."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

RANK = """
import pickle, sys
from slime.backends.fsdp import FSDPTrainer
from slime.errors import TrainError
rank, folder = int(sys.argv[1]), sys.argv[2]
args, rollouts = pickle.load(open(folder + "/order", "rb"))
trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
before = trainer.load()
metrics = [trainer.train(i, samples) for i, samples in enumerate(rollouts)]
checksum = trainer.export_weights(folder + "/weights", 1)
path = trainer.save(len(rollouts) - 1, 1, 0)
log_probs = trainer.log_probs(rollouts[0])
refused = ""
for sample in rollouts[0]:
    sample.reward = 3e38
try:
    trainer.train(9, rollouts[0])
except TrainError as error:
    refused = str(error)
pickle.dump((metrics, checksum, log_probs, refused), open(f"{folder}/result{rank}", "wb"))
trainer.close()
"""


@pytest.mark.parametrize(
    "changes",
    [
        {"max_tokens_per_gpu": 25, "balance_data": True},
        {
            "global_batch_size": 2,
            "use_kl_loss": True,
            "kl_loss_coef": 0.1,
            "kl_loss_type": "k3",
            "calculate_per_token_loss": True,
        },
    ],
    ids=["packed", "steps-with-kl"],
)
def test_two_ranks_reach_the_loss_and_the_weights_of_one(
    make_args: Any, make_trainer: Any, make_samples: Any, tmp_path: Path, changes: dict[str, Any]
) -> None:
    rollouts = [make_samples(5, seed=1), make_samples(3, seed=2)]
    rollouts[0][0].rollout_log_probs = [-2.0] * rollouts[0][0].response_length
    args = make_args(**changes, save=str(tmp_path / "two"))
    (tmp_path / "order").write_bytes(pickle.dumps((args, rollouts)))
    command = [sys.executable, "-c", RANK]
    ranks = [subprocess.Popen([*command, str(r), str(tmp_path)], stderr=subprocess.PIPE) for r in range(2)]
    one = make_trainer(**changes)
    expected = [one.train(i, samples) for i, samples in enumerate(rollouts)]
    one.export_weights(str(tmp_path / "one_weights"), 1)
    expected_log_probs = one.log_probs(rollouts[0])
    for process in ranks:
        _, errors = process.communicate(timeout=90)
        assert process.returncode == 0, errors.decode()

    results = [pickle.loads((tmp_path / f"result{rank}").read_bytes()) for rank in range(2)]
    (metrics, checksum, log_probs, refused), (other_metrics, other_checksum, *_) = results
    assert checksum == other_checksum
    for mine, others, single in zip(metrics, other_metrics, expected, strict=True):
        assert mine.keys() == others.keys() == single.keys()
        for name in mine.keys() - {"train_seconds"}:
            assert mine[name] == others[name], name
            assert mine[name] == pytest.approx(single[name], abs=1e-4, rel=1e-3), name
    for mine, single in zip(log_probs, expected_log_probs, strict=True):
        assert mine == pytest.approx(single, abs=5e-3)
    assert "rollout 9, step 0" in refused
    ours, theirs = (load_file(tmp_path / name / "model.safetensors") for name in ("weights", "one_weights"))
    for name in ours:
        assert_close(ours[name], theirs[name], atol=1e-4, rtol=1e-3)

    resumed = make_trainer(**changes, save=str(tmp_path / "two"))
    assert resumed.load().rollout_id == 1
    assert resumed.export_weights(str(tmp_path / "resharded"), 2) == checksum
