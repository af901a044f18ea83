"""Fireworks' SDK with a fake of its HTTP API: rented once, weights loaded while serving, states resumed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("fireworks.training.sdk")

from openclaw_fireworks.renting import rent
from openclaw_fireworks.service import FireworksService
from slime.errors import ConfigError
from slime.rented.service import AdamStep, SamplingRequest, ServiceRefuses, ServiceSettings, TrainingSequence
from tests.fakes import fireworks
from tests.fakes.fireworks import KEY, SHAPE, FireworksHouse
from tests.fakes.local_service import log_probs
from tests.fakes.served import served
from tests.fakes.tiny_engine_model import save_model

BASE = "accounts/fireworks/models/tiny"
IDS = [5, 9, 13, 21, 3]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("fireworks"), 0)


@pytest.fixture
def house(model: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FireworksHouse]:
    found = fireworks.move_in(str(model))
    with served(fireworks.app(found)) as url:
        monkeypatch.setenv("FIREWORKS_API_KEY", KEY)
        monkeypatch.setenv("FIREWORKS_BASE_URL", url)
        monkeypatch.setattr("openclaw_fireworks.service.LOOK_SECONDS", 0)
        yield found


def rented(house: FireworksHouse, folder: Path, monkeypatch: pytest.MonkeyPatch) -> FireworksService:
    import os

    found = rent(BASE, 8, SHAPE, "serving", folder)
    monkeypatch.setenv("FIREWORKS_TRAINER_JOB", found.job)
    monkeypatch.setenv("FIREWORKS_DEPLOYMENT", found.deployment)
    return FireworksService(ServiceSettings(BASE, os.environ["FIREWORKS_BASE_URL"], rank=8))


def test_a_run_rents_a_trainer_and_a_deployment_once(house: FireworksHouse, tmp_path: Path) -> None:
    first = rent(BASE, 8, SHAPE, "serving", tmp_path)
    house.jobs[first.job]["state"] = "JOB_STATE_PAUSED"
    assert rent(BASE, 8, SHAPE, "serving", tmp_path) == first
    assert (len(house.jobs), len(house.deployments)) == (1, 1)
    assert house.jobs[first.job]["state"] == "JOB_STATE_RUNNING", "it was woken"
    assert house.options["trainer"]["trainingConfig"] == {
        "baseModel": BASE,
        "loraRank": 8,
        "learningRate": 1e-5,
    }
    deployment = house.options["deployment"]
    assert deployment["hotLoadTransitionType"] == "SYNC", "answers end with the weights that they began with"
    assert deployment["hotLoadTrainerJob"] == house.jobs[first.job]["name"]


def test_a_wrong_key_shape_or_deployment_is_rejected_in_one_line(
    house: FireworksHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.deployments["serving"] = {"name": "accounts/me/deployments/serving", "state": "READY"}
    house.live, house.snapshots["old-step"] = "old-step", "x"
    with pytest.raises(
        ConfigError, match=r"in use by another run \(old-step\): set DEPLOYMENT_ID to another name"
    ):
        rent(BASE, 8, SHAPE, "serving", tmp_path)
    house.live = None
    house.deployments["serving"]["hotLoadTrainerJob"] = "accounts/me/rlorTrainerJobs/other"
    with pytest.raises(ConfigError, match=r"in use by another run \(accounts/me/rlorTrainerJobs/other\)"):
        rent(BASE, 8, SHAPE, "serving", tmp_path)
    assert not house.jobs and not list(tmp_path.iterdir()), "nothing was rented for it"
    house.deployments.clear()
    with pytest.raises(ConfigError, match="cannot rent") as unknown:
        rent(BASE, 8, SHAPE + "-unknown", "serving", tmp_path)
    monkeypatch.setenv("FIREWORKS_API_KEY", "fw_wrong")
    with pytest.raises(ConfigError, match="FIREWORKS_API_KEY is refused") as wrong:
        rent(BASE, 8, SHAPE, "serving", tmp_path)
    for refusal in (unknown, wrong):
        assert "\n" not in str(refusal.value) and "fw_wrong" not in str(refusal.value)


def test_answers_are_ids_with_unscaled_log_probs(
    house: FireworksHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rented(house, tmp_path, monkeypatch)
    service.check()
    sampler = service.sampler(None)
    found = sampler.sample(SamplingRequest(IDS, most=4, temperature=0.5)).result()
    base = house.service._base()
    assert found.log_probs == pytest.approx(log_probs(base, IDS + found.ids).tolist()[-4:], abs=1e-5)
    body = house.options["completion"]
    assert (body["prompt"], body["raw_output"], body["top_k"], body["temperature"]) == (IDS, True, 0, 0.5)
    stop = found.ids[1]
    again = sampler.sample(SamplingRequest(IDS, most=4, temperature=0.0, stop_ids=(stop,))).result()
    assert stop not in again.ids[:-1]


def test_a_step_updates_the_adapter_which_is_loaded_while_serving(
    house: FireworksHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rented(house, tmp_path, monkeypatch)
    trained, base = service.new(), service.sampler(None)
    [before] = trained.forward([TrainingSequence(IDS)]).result()
    assert base.log_probs(IDS).result() == pytest.approx(before, abs=1e-5)
    step = TrainingSequence(IDS, before, [1.0] * 4)
    trained.policy_gradient("importance_sampling", (0.0, 1e9), [step]).result()
    trained.step(AdamStep(1e-2, 0.9, 0.98, 1e-8, 0.0, 1.0)).result()
    assert "grad_accumulation_normalization" not in house.options["step"]
    [after] = trained.forward([TrainingSequence(IDS)]).result()
    assert sum(after) > sum(before)
    address = trained.save_sampler("v000001_step").result()
    service.load(address)
    assert house.live == address
    assert service.sampler(address).log_probs(IDS).result() == pytest.approx(after, abs=1e-5)
    assert base.log_probs(IDS).result() == pytest.approx(before, abs=1e-5), "the teacher stays as it is"
    with pytest.raises(ServiceRefuses, match="cannot go back to the base model"):
        service.load(None)
    looks = house.asked.count("POST /hot_load/v1/models/hot_load")
    service.load(address)
    assert house.asked.count("POST /hot_load/v1/models/hot_load") == looks, "it is there already"


def test_a_saved_state_is_resumed(
    house: FireworksHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = rented(house, tmp_path, monkeypatch)
    trained = service.new()
    [before] = trained.forward([TrainingSequence(IDS)]).result()
    trained.policy_gradient("ppo", (0.8, 1.28), [TrainingSequence(IDS, before, [1.0] * 4)]).result()
    trained.step(AdamStep(1e-2, 0.9, 0.98, 1e-8, 0.0, 1.0)).result()
    address = trained.save_state("step_000001_v000001").result()
    [expected] = trained.forward([TrainingSequence(IDS)]).result()
    [found] = service.resume(address).forward([TrainingSequence(IDS)]).result()
    assert found == pytest.approx(expected, abs=1e-6)


def test_a_loading_deployment_delays_answers_without_errors(
    house: FireworksHouse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """425 while it loads: requests are retried until it answers."""
    from fireworks.training.sdk import DeploymentSampler

    service = rented(house, tmp_path, monkeypatch)
    address = service.new().save_sampler("v1").result()
    sampling = service.sampler(address)
    statuses: list[int] = []
    post = DeploymentSampler._post_completion

    async def told(self: DeploymentSampler, *args: object) -> object:
        answer = await post(self, *args)
        statuses.append(answer.status_code)
        if answer.status_code == 425:
            house.live, house.target = address, None
        return answer

    monkeypatch.setattr(DeploymentSampler, "_post_completion", told)
    monkeypatch.setattr("openclaw_fireworks.sampler.LOADING_SECONDS", 0.01)
    house.target = address
    assert len(sampling.sample(SamplingRequest(IDS, most=2)).result(timeout=60).ids) == 2
    assert statuses == [425, 200]
