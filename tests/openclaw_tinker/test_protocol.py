"""The SDK over HTTP: a fake that answers like a recorded real server, and our service on it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("tinker")

from openclaw_tinker.service import TinkerService
from slime.errors import ConfigError
from slime.rented.service import AdamStep, SamplingRequest, ServiceAway, ServiceSettings, TrainingSequence
from tests.fakes import tinker as fake
from tests.fakes.local_service import log_probs
from tests.fakes.served import served
from tests.fakes.tinker import TinkerHouse
from tests.fakes.tinker_talk import IDS, recorded
from tests.fakes.tiny_engine_model import save_model

REAL = json.loads((Path(__file__).parent / "recorded.json").read_text())
"""Recorded from skyrl 0.4.0 by lab/claw_lab/long/record_tinker.py."""


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> TinkerHouse:
    return TinkerHouse(str(save_model(tmp_path_factory.mktemp("tinker"), 0)))


@pytest.fixture(scope="module")
def url(house: TinkerHouse) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, served(fake.app(house)) as found:
        patch.setenv("TINKER_API_KEY", "tml-x")
        patch.setenv("TINKER_TELEMETRY", "0")
        yield found


def by_call(rows: list[list[Any]]) -> dict[str, list[str]]:
    """Returns the different answers to each call, in the order of their first occurrence."""
    found: dict[str, list[str]] = {}
    for call, status, shape in rows:
        told = json.dumps([status, without_nothing(shape)], sort_keys=True)
        if told not in found.setdefault(call, []):
            found[call].append(told)
    return found


def without_nothing(shape: Any) -> Any:
    """Removes null fields, which may be omitted."""
    if not isinstance(shape, dict):
        return shape
    return {name: without_nothing(one) for name, one in shape.items() if one is not None}


def test_the_fake_server_returns_the_recorded_answers(url: str, house: TinkerHouse) -> None:
    assert by_call(recorded(url, house.model)) == by_call(REAL)


def test_a_step_over_http_changes_weights_and_samples(url: str, house: TinkerHouse) -> None:
    service = TinkerService(ServiceSettings(house.model, url, rank=8))
    trained = service.new()
    [before] = trained.forward([TrainingSequence(IDS)]).result()
    assert before == pytest.approx(log_probs(house.service._base(), IDS).tolist(), abs=1e-5)
    assert service.sampler(None).log_probs(IDS).result() == pytest.approx(before, abs=1e-5)
    trained.policy_gradient(
        "importance_sampling", (0.0, 1e9), [TrainingSequence(IDS, before, [1.0] * 4)]
    ).result()
    assert trained.step(AdamStep(1e-2, 0.9, 0.98, 1e-8, 0.0, 1.0)).result()["skyrl.ai/grad_norm"] > 0
    [after] = trained.forward([TrainingSequence(IDS)]).result()
    assert sum(after) > sum(before)
    version = service.sampler(trained.save_sampler("v1").result())
    assert version.log_probs(IDS).result() == pytest.approx(after, abs=1e-5)
    assert len(version.sample(SamplingRequest(IDS, most=3)).result().ids) == 3
    [again] = service.resume(trained.save_state("s1").result()).forward([TrainingSequence(IDS)]).result()
    assert again == pytest.approx(after, abs=1e-5)


def test_a_wrong_rank_and_an_unknown_model_are_refused_in_one_line(url: str, house: TinkerHouse) -> None:
    for settings, named in (
        (ServiceSettings(house.model, url, rank=9), "no adapter of rank 9"),
        (ServiceSettings("another/model", url), "has no base model 'another/model'"),
    ):
        with pytest.raises(ConfigError) as refusal:
            service = TinkerService(settings)
            service.check()
            service.new()
        assert named in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_lost_adapter_is_a_retryable_error(url: str, house: TinkerHouse) -> None:
    """Another trainer then continues from the last saved state."""
    trained = TinkerService(ServiceSettings(house.model, url, rank=8)).new()
    house.trained.clear()
    with pytest.raises(ServiceAway, match="not loaded"):
        trained.forward([TrainingSequence(IDS)]).result()


def test_two_runs_from_one_state_have_separate_training_clients(url: str, house: TinkerHouse) -> None:
    service = TinkerService(ServiceSettings(house.model, url, rank=8))
    state = service.new().save_state("shared").result()
    first, second = service.resume(state), TinkerService(service.settings).resume(state)
    [before] = second.forward([TrainingSequence(IDS)]).result()
    first.policy_gradient(
        "importance_sampling", (0.0, 1e9), [TrainingSequence(IDS, before, [1.0] * 4)]
    ).result()
    first.step(AdamStep(1e-2, 0.9, 0.98, 1e-8, 0.0, 1.0)).result()
    assert first.forward([TrainingSequence(IDS)]).result() != [before]
    assert second.forward([TrainingSequence(IDS)]).result() == [pytest.approx(before, abs=1e-6)]


def test_a_wrong_key_is_refused_in_one_line_and_never_shown(
    url: str, house: TinkerHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "key", "tml-right")
    monkeypatch.setenv("TINKER_API_KEY", "tml-wrong")
    with pytest.raises(ConfigError, match="TINKER_API_KEY is refused") as refusal:
        TinkerService(ServiceSettings(house.model, url)).check()
    assert "\n" not in str(refusal.value) and "tml-wrong" not in str(refusal.value)
