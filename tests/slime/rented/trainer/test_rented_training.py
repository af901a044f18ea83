"""Tests that a model at a service is trained like a local one: the same gradients, the same metrics, the same
rollback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from claw_base.run_folder.usage import meter_path
from slime.errors import CheckpointError, DataError, TrainError
from slime.gate.files import measure_files
from slime.gate.memory import KeptState
from slime.rented.engine.weights import RentedVersions
from slime.rented.service import ServiceForgot, ServiceSettings
from slime.rented.trainer import RentedTrainer
from slime.rented.trainer.retry import AdapterLost
from slime.types import Sample
from tests.fakes.fixtures import MakeArgs, MakeHinted, MakeTrainer
from tests.fakes.local_service import House, LocalService, log_probs, move_in

if TYPE_CHECKING:
    from slime.training.trainer import Trainer


MakeRented = Callable[..., RentedTrainer]

SERVICE = "tests.fakes.local_service:LocalService"
HINTED = (1, 1, 0, 1)


@pytest.fixture
def house(monkeypatch: pytest.MonkeyPatch) -> House:
    monkeypatch.setattr("slime.rented.trainer.retry.FIRST_PAUSE", 0.01)
    return move_in()


@pytest.fixture
def rented(make_args: MakeArgs, model_folder: str, house: House, tmp_path: Path) -> Iterator[MakeRented]:
    trainers: list[RentedTrainer] = []

    def make(**changes: object) -> RentedTrainer:
        there = {
            "train_backend": "rented",
            "rented_service": SERVICE,
            "rented_model": model_folder,
            "run_dir": str(tmp_path),
            "use_lora": True,
            "lora_rank": 4,
            "use_dynamic_batch_size": False,
            "micro_batch_size": 1,
        }
        trainers.append(RentedTrainer(make_args(**(there | changes))))
        trainers[-1].load()
        return trainers[-1]

    yield make
    for trainer in trainers[:1]:
        trainer.close()


@pytest.fixture
def at_one(make_samples: MakeHinted) -> list[Sample]:
    """Returns samples at temperature 1, with log-probs of an engine."""
    samples = make_samples(HINTED, temperature=1.0)
    return [
        replace(one, rollout_log_probs=[-1.5 - 0.1 * t for t in range(one.response_length)])
        for one in samples
    ]


def weights_of(trainer: Trainer | RentedTrainer) -> dict[str, torch.Tensor]:
    if isinstance(trainer, RentedTrainer):
        state = trainer.model.adapter.model.state_dict()  # type: ignore[attr-defined]
        return {name: tensor.clone() for name, tensor in state.items()}
    return {name: tensor.full_tensor().clone() for name, tensor in trainer.model.state_dict().items()}


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> None:
    for name in a.keys() & b.keys():
        torch.testing.assert_close(
            a[name], b[name], rtol=1e-4, atol=2e-5, msg=lambda text, name=name: f"{name}: {text}"
        )
    assert len(a.keys() & b.keys()) > 10


LOSSES: dict[str, dict[str, Any]] = {
    "rewards": {},
    "rewards and KL": {"use_kl_loss": True, "kl_loss_coef": 0.3, "kl_loss_type": "low_var_kl"},
    "a mean over tokens": {"calculate_per_token_loss": True, "eps_clip_high": 0.28},
    "corrected": {"use_tis": True},
    "distilled": {
        "advantage_estimator": "on_policy_distillation", "teacher_source": "trainer", "teacher_model": "base",
    },
    "combined": {
        "loss_spec_path": "openclaw_combine.loss:combine", "teacher_source": "trainer", "teacher_model": "base",
    },
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_trains_a_rented_model_like_a_local_one(
    name: str, rented: MakeRented, make_trainer: MakeTrainer, at_one: list[Sample]
) -> None:
    samples = [one for one in at_one if one.teacher_tokens_candidates] if name == "distilled" else at_one
    there, here = rented(**LOSSES[name]), make_trainer(**LOSSES[name])
    for rollout_id in range(2):
        found = there.train(rollout_id, samples)
        expected = here.train(rollout_id, samples)
        for metric in (
            "loss",
            "advantage",
            "num_tokens",
            "train_rollout_logprob_abs_diff",
            "kl_loss",
            "pg_loss",
        ):
            assert found.get(metric, 0.0) == pytest.approx(expected.get(metric, 0.0), rel=1e-3, abs=1e-5), (
                metric
            )
    assert found["grad_norm"] == pytest.approx(expected["grad_norm"], rel=1e-3)
    assert_same(weights_of(there), weights_of(here))


@pytest.mark.parametrize(
    ("loss", "changes"),
    [("ppo", {"eps_clip_high": 0.28}), ("cispo", {"advantage_estimator": "cispo"})],
)
def test_the_services_loss_equals_the_local_one_in_one_pass(
    loss: str, changes: dict[str, Any], rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    common = {**changes, "use_rollout_logprobs": True}
    two, one = rented(**common), rented(**common, rented_loss=loss)
    expected = two.train(0, at_one)
    house.asked.clear()
    found = one.train(0, at_one)
    assert house.asked == [loss, "step"]
    assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
    assert_same(weights_of(one), weights_of(two))


def test_a_resumed_run_continues_as_if_uninterrupted(rented: MakeRented, at_one: list[Sample]) -> None:
    first = rented()
    first.train(0, at_one)
    first.save(0, version=1, parent=0)
    first.train(1, at_one)
    second = rented()
    assert (second.global_step, second.version) == (1, 1)
    second.train(1, at_one)
    assert_same(weights_of(second), weights_of(first))


def test_a_version_contains_an_address_for_sampling(
    rented: MakeRented, at_one: list[Sample], model_folder: str, tmp_path: Path
) -> None:
    trainer = rented()
    base = trainer.export_weights(str(tmp_path / "v0"), 0)
    trainer.train(0, at_one)
    checksum = trainer.export_weights(str(tmp_path / "v1"), 1)
    versions = RentedVersions(LocalService(ServiceSettings(model_folder)), model_folder)
    prepared = versions.prepare(str(tmp_path / "v1"), 1)
    assert prepared.weights.checksum == checksum != base == versions.live.weights.checksum
    live = versions.switch(1).sampler().log_probs(at_one[0].tokens).result()
    assert live == pytest.approx(log_probs(trainer.model.adapter.model, at_one[0].tokens).tolist(), abs=1e-5)
    trainer.save(0, 1, 0, str(tmp_path / "v1"))
    assert (tmp_path / "checkpoints" / "checkpoint-1" / "rented_weights.json").is_file()


def test_a_version_lost_by_the_service_is_detected_and_can_be_saved_again(
    rented: MakeRented, house: House, at_one: list[Sample], tmp_path: Path
) -> None:
    trainer, base, first = rented(), str(tmp_path / "v0"), str(tmp_path / "v1")
    trainer.export_weights(base, 0)
    trainer.train(0, at_one)
    old = trainer.export_weights(first, 1)
    house.away = 1
    assert trainer.keeps(base) and trainer.keeps(first), "a service that is away has forgotten nothing"
    house.kept.clear()
    assert trainer.keeps(base) and not trainer.keeps(first)
    house.kept["elsewhere"] = None
    assert trainer.export_weights(first, 1) != old
    assert trainer.keeps(first)


def test_a_permanently_lost_state_ends_the_trainer_instead_of_endless_retries(
    rented: MakeRented, at_one: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = rented()

    def forgets(passages: object) -> Any:
        raise ServiceForgot("Model model_1 not loaded")

    monkeypatch.setattr(trainer.model.adapter, "forward", forgets)
    with pytest.raises(AdapterLost, match="not loaded"):
        trainer.log_probs(at_one)


def test_a_rejected_update_is_undone_at_the_service(
    rented: MakeRented, at_one: list[Sample], tmp_path: Path
) -> None:
    trainer = rented()
    trainer.train(0, at_one)
    before, kept = weights_of(trainer), KeptState(trainer)
    trainer.train(1, at_one)
    trainer.export_weights(str(tmp_path / "v2"), 2)
    assert measure_files(str(tmp_path / "v2"), str(tmp_path / "v1")) == {}
    kept.restore(trainer)
    assert_same(weights_of(trainer), before)
    assert trainer.global_step == 1


def test_log_probs_of_stored_answers_are_those_of_the_adapter(
    rented: MakeRented, at_one: list[Sample]
) -> None:
    trainer = rented()
    found = trainer.log_probs(at_one)
    assert [len(one) for one in found] == [sample.response_length for sample in at_one]
    whole = log_probs(trainer.model.adapter.model, at_one[0].tokens).tolist()
    assert found[0] == pytest.approx(whole[-at_one[0].response_length :], abs=1e-6)


def test_a_sample_with_a_rejected_teacher_sequence_is_dropped_and_counted(
    rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    trainer = rented(**LOSSES["combined"])
    hinted = at_one[0].teacher_tokens_candidates[0]
    house.refuses = lambda ids: list(ids) == hinted
    metrics = trainer.train(0, at_one)
    assert metrics["teacher_failed"] == 1
    assert metrics["num_samples"] == len(at_one) - 1


def test_a_sample_that_only_follows_its_teacher_is_rejected_before_any_request(
    rented: MakeRented, at_one: list[Sample]
) -> None:
    trainer = rented(**LOSSES["combined"])
    following = replace(at_one[0], divergence="forward")
    with pytest.raises(DataError, match="divergence 'forward', which needs a teacher's most likely ids"):
        trainer.train(0, [*at_one, following])


def test_requests_to_the_base_are_retried_while_the_service_is_unavailable(
    rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    trainer = rented(**LOSSES["rewards and KL"])
    trainer.train(0, at_one)
    house.away = 2
    assert trainer.train(1, at_one)["num_samples"] == len(at_one)


def test_an_outage_during_a_step_restarts_the_trainer_without_losing_progress(
    rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    trainer = rented()
    trainer.train(0, at_one)
    trainer.save(0, version=1, parent=0)
    saved = weights_of(trainer)
    house.away = 1
    with pytest.raises(AdapterLost, match="nobody is at home"):
        trainer.train(1, at_one)
    house.away = 2
    assert_same(weights_of(rented()), saved)


def test_a_checkpoint_lost_by_the_service_is_rejected(
    rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    trainer = rented()
    trainer.train(0, at_one)
    trainer.save(0, version=1, parent=0)
    house.kept.clear()
    with pytest.raises(CheckpointError, match="does not have local://state"):
        rented()


def test_a_checkpoint_of_another_base_model_is_refused(
    rented: MakeRented, at_one: list[Sample], other_folder: str
) -> None:
    trainer = rented()
    trainer.train(0, at_one)
    trainer.save(0, version=1, parent=0)
    with pytest.raises(CheckpointError, match="was trained from"):
        rented(rented_model=other_folder)


def test_a_loss_that_is_not_finite_changes_no_weights(
    rented: MakeRented, house: House, at_one: list[Sample]
) -> None:
    trainer = rented()
    before = weights_of(trainer)
    broken = [replace(one, reward=float("nan")) for one in at_one[:1]]
    house.asked.clear()
    with pytest.raises((TrainError, Exception)):
        trainer.train(0, broken + at_one[1:])
    assert "step" not in house.asked
    assert_same(weights_of(trainer), before)


def test_tokens_are_counted_and_priced(
    rented: MakeRented, at_one: list[Sample], model_folder: str, tmp_path: Path
) -> None:
    prices = tmp_path / "prices.json"
    prices.write_text(json.dumps({model_folder: {"prefill": 1.0, "sample": 2.0, "train": 4.0}}))
    trainer = rented(rented_prices=str(prices), **LOSSES["rewards and KL"])
    metrics = trainer.train(0, at_one)
    tokens = sum(len(one.tokens) for one in at_one)
    assert metrics["tokens_trainer_train"] == tokens
    assert metrics["tokens_trainer_prefill"] == 2 * tokens
    assert metrics["cost_usd"] == pytest.approx(6 * tokens / 1e6)
    assert meter_path(tmp_path, "trainer").is_file()
