"""Tests that adapters trained in turn by one trainer equal bit by bit those trained alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from slime.errors import CheckpointError
from slime.ray.adapter_turns import AdapterTurns
from slime.training.trainer import Trainer
from slime.types import Sample
from slime.weights.checkpoints import latest
from tests.fakes.fixtures import MakeSamples, MakeTrainer

STEPS = ["ada", "bob", "ada", "ada", "bob", "cem", "ada"]


def trainer_of(make_trainer: MakeTrainer, save: Path, parent: Path | None = None) -> Trainer:
    trainer = make_trainer(
        use_lora=True, lora_rank=4, lora_alpha=8.0, lora_dropout=0.3, weight_decay=0.1, save=str(save),
        lr_warmup_iters=5, train_adapters="per-key", adapter_parent=None if parent is None else str(parent),
    )  # fmt: skip
    trainer.load()
    return trainer


def tensors(trainer: Trainer) -> dict[str, torch.Tensor]:
    moments = {
        f"{number}.{name}": value.clone()
        for number, state in enumerate(trainer.learner.optimizer.state.values())
        for name, value in state.items()
    }
    return weights_of(trainer) | moments


def learn(
    trainer: Trainer, names: list[str], batches: list[list[Sample]], save: Path
) -> dict[str, torch.Tensor]:
    """Trains the steps of these adapters, each from its own folder; returns the state of the last one."""
    turns = AdapterTurns(trainer)
    for rollout_id, name in enumerate(STEPS):
        if name in names:
            folder = save / name
            turns.load_adapter(str(folder), None if (found := latest(folder)) is None else str(found))
            metrics = trainer.train(rollout_id, batches[rollout_id])
            trainer.save(rollout_id, rollout_id + 1, None)
            assert metrics["lr"] == (trainer.global_step) / 5 * trainer.args.lr, "a rate by its own steps"
    return tensors(trainer)


def test_turns_of_other_adapters_change_nothing(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    batches = [make_samples(4, seed=seed) for seed in range(len(STEPS))]
    trainer = trainer_of(make_trainer, tmp_path / "together")
    base = {name: tensor for name, tensor in tensors(trainer).items() if ".lora_" not in name}
    together = learn(trainer, ["ada", "bob", "cem"], batches, tmp_path / "together")
    assert all(torch.equal(together[name], tensor) for name, tensor in base.items()), "the base is frozen"
    trainer.close()
    alone = learn(trainer_of(make_trainer, tmp_path / "alone"), ["ada"], batches, tmp_path / "alone")
    assert together.keys() == alone.keys()
    assert all(torch.equal(together[name], alone[name]) for name in alone)


def test_adapter_turns_without_a_checkpoint_are_not_resumed(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    """As after a rejected step, or a kill during one."""
    trainer = trainer_of(make_trainer, tmp_path)
    turns = AdapterTurns(trainer)
    fresh = tensors(trainer)
    trainer.train(0, make_samples(4))
    assert trainer.global_step == 1
    turns.load_adapter(str(tmp_path / "ada"), None)
    now = tensors(trainer)
    assert trainer.global_step == 0 and now.keys() == fresh.keys()
    assert all(torch.equal(now[name], fresh[name]) for name in fresh)


def test_a_new_adapter_starts_from_its_parent_and_keeps_it_when_the_parent_is_deleted(
    make_trainer: MakeTrainer, make_samples: MakeSamples, tmp_path: Path
) -> None:
    batches = [make_samples(4, seed=seed) for seed in range(len(STEPS))]
    parent, save = tmp_path / "earlier" / "cem", tmp_path / "run"
    first = trainer_of(make_trainer, tmp_path / "earlier")
    learn(first, ["cem"], batches, tmp_path / "earlier")
    taught = weights_of(first)
    first.close()
    trainer = trainer_of(make_trainer, save, parent)
    untrained = weights_of(trainer)
    turns = AdapterTurns(trainer)
    turns.load_adapter(str(save / "ada"), None)
    assert same(weights_of(trainer), taught) and not same(taught, untrained)
    assert trainer.global_step == 0 and not trainer.learner.optimizer.state, "its optimizer is its own"
    assert trainer.train(0, batches[0])["lr"] == trainer.global_step / 5 * trainer.args.lr
    trainer.save(0, 1, None)
    learned = weights_of(trainer)
    assert not same(learned, taught)
    shutil.rmtree(parent)
    turns.load_adapter(str(save / "bob"), None)
    assert same(weights_of(trainer), taught), (
        "one that was forgotten, and a new one, start from the parent again"
    )
    turns.load_adapter(str(save / "ada"), str(latest(save / "ada")))
    assert same(weights_of(trainer), learned), "it has what the parent knew"
    with pytest.raises(CheckpointError, match=r"--adapter-parent: .* contains no checkpoint"):
        AdapterTurns(trainer)


def weights_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return some.keys() == others.keys() and all(torch.equal(some[name], others[name]) for name in some)
