"""Tests that two processes (gloo) equal one, also if only one of them has images."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch.testing import assert_close

from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeTrainer
from tests.fakes.forks import Forks

RANK = """
import pickle, sys
from slime.training.fsdp import FSDPTrainer
rank, folder = int(sys.argv[1]), sys.argv[2]
args, samples = pickle.load(open(folder + "/order", "rb"))
trainer = FSDPTrainer(args, rank, 2, init_method=f"file://{folder}/meet")
found = trainer.train(0, samples), trainer.export_weights(f"{folder}/weights", 1)
pickle.dump(found, open(f"{folder}/result{rank}", "wb"))
trainer.close()
"""


def test_a_rank_without_images_runs_the_vision_model_too(
    make_args: MakeArgs, make_trainer: MakeTrainer, samples: list[Sample], fsdp_forks: Forks, tmp_path: Path
) -> None:
    flags = {"global_batch_size": 2, "gradient_checkpointing": True, "save": str(tmp_path / "save")}
    chosen = [samples[0], samples[4], samples[3]]
    (tmp_path / "order").write_bytes(pickle.dumps((make_args(**flags), chosen)))
    fsdp_forks.run(RANK, tmp_path, *([rank, tmp_path] for rank in range(2)))
    (metrics, checksum), (others, same) = (
        pickle.loads((tmp_path / f"result{rank}").read_bytes()) for rank in range(2)
    )
    assert checksum == same and metrics["grad_norm"] == others["grad_norm"] > 0
    one = make_trainer(**flags)
    assert one.train(0, chosen)["grad_norm"] == pytest.approx(metrics["grad_norm"], rel=1e-3)
    one.export_weights(str(tmp_path / "one"), 1)
    ours = load_file(tmp_path / "weights" / "model.safetensors")
    for name, tensor in load_file(tmp_path / "one" / "model.safetensors").items():
        assert_close(ours[name], tensor, atol=1e-4, rtol=1e-3)
