"""Tests that one adapter of an engine is updated like the engine's weights, without effect on the base."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from slime.engines.client import EngineControlError
from slime.engines.embedded.service import EngineService
from slime.engines.requests import WeightsError
from slime.ray.versions.adapter_engines import AdapterEngine, AdapterState, ExaminedAdapter
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion, read_live
from tests.fakes.lora_folders import save_adapter
from tests.fakes.tiny_engine_model import save_model
from tests.slime.engines.embedded.test_engine_core import service_of

__all__ = ["service_of"]


class InProcess:
    """`EngineControl` of an engine in this process."""

    url = "http://engine"

    def __init__(self, service: EngineService) -> None:
        self.service = service
        self.answered: list[tuple[list[int], str | None]] = []

    def load_adapter(self, name: str, path: str, version: int) -> str:
        try:
            return self.service.adapters.register(name, path, version).checksum
        except WeightsError as error:
            raise EngineControlError(str(error), 400) from error

    def unload_adapter(self, name: str) -> None:
        self.service.adapters.unregister(name)

    def adapters(self) -> dict[str, Any]:
        return self.service.adapters.listing()

    def answer(self, prompt: list[int], most: int, temperature: float, adapter: str | None) -> dict[str, Any]:
        self.answered.append((prompt, adapter))
        return {"ids": prompt, "log_probs": [], "text": "", "ended": True}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_model(tmp_path / "model", seed=1, tie=False)


@pytest.fixture
def engine(service_of: Any, model: Path) -> Any:
    service = service_of(model)
    service.engine.start()
    return InProcess(service)


@pytest.fixture
def versions(tmp_path: Path, model: Path) -> list[Path]:
    return [model, *(save_adapter(tmp_path / f"v{number}", model, number) for number in (1, 2))]


def test_a_prepared_version_answers_no_request_until_the_switch(engine: Any, versions: list[Path]) -> None:
    ada = AdapterEngine(engine, "ada")
    base = engine.service.weights.live.checksum
    assert ada.info() == AdapterState(-1, "")
    sums = {}
    for version in (1, 2):
        before = ada.info()
        sums[version] = ada.prepare(str(versions[version]), version)
        assert ada.info() == before
        assert ada.switch(version) == sums[version]
        assert ada.info() == AdapterState(version, sums[version])
        assert set(engine.adapters()) == {"ada"}, "what was prepared is gone"
    with pytest.raises(EngineControlError, match="version 1 of the adapter 'ada' is not prepared"):
        ada.switch(1)
    ada.prepare(str(versions[1]), 1)
    ada.switch(1)
    assert ada.info() == AdapterState(1, sums[1]), "an older version can be gone back to"
    assert engine.service.weights.live.checksum == base
    ada.prepare(str(versions[2]), 2)
    ada.discard()
    ada.discard()
    assert set(engine.adapters()) == {"ada"}


def test_an_update_of_one_adapter_keeps_the_others(engine: Any, versions: list[Path], tmp_path: Path) -> None:
    announced: list[tuple[str, int]] = []
    for name, version in (("ada", 1), ("bob", 1), ("ada", 2)):
        home = tmp_path / name
        home.mkdir(exist_ok=True)
        checksum = AdapterEngine(engine, name).prepare(str(versions[version]), version)
        driven = AdapterEngine(engine, name)
        update = WeightUpdate(
            [driven], home, lambda one, name=name: announced.append((name, one.weights.version))
        )
        update.publish(Candidate(WeightVersion(version, str(versions[version]), checksum), version, None))
        live = read_live(home)
        assert live is not None and live.version == version
    assert announced == [("ada", 1), ("bob", 1), ("ada", 2)]
    found = {name: one["weight_version"] for name, one in engine.adapters().items()}
    assert found == {"ada": "2", "bob": "1"}


def test_a_folder_without_a_matching_adapter_changes_nothing(
    engine: Any, versions: list[Path], tmp_path: Path
) -> None:
    ada = AdapterEngine(engine, "ada")
    ada.prepare(str(versions[1]), 1)
    ada.switch(1)
    before = ada.info()
    with pytest.raises(EngineControlError):
        ada.prepare(str(tmp_path / "nothing"), 2)
    ada.discard()
    assert ada.info() == before and set(engine.adapters()) == {"ada"}


def test_the_gate_can_query_base_live_version_and_candidate(engine: Any, versions: list[Path]) -> None:
    ada = AdapterEngine(engine, "ada")
    ada.prepare(str(versions[1]), 1)
    ada.switch(1)
    gate = ExaminedAdapter(engine, "ada")
    names = []
    for version, folder in enumerate(versions):
        assert [one["ids"] for one in gate.try_weights(str(folder), version, [[5], [6]], 4)] == [[5], [6]]
        names.append({adapter for _, adapter in engine.answered})
        engine.answered.clear()
    assert names == [{None}, {"ada"}, {"ada~gate"}]
    assert ada.info().version == 1, "a candidate that is asked does not go live"
    gate.discard()
    assert set(engine.adapters()) == {"ada"}


def test_a_cancelled_check_of_an_adapter_sends_no_more_requests(versions: list[Path]) -> None:
    asked: list[object] = []

    def answer(*words: object) -> dict[str, Any]:
        asked.append(words)
        gate.discard()
        return {}

    engine: Any = SimpleNamespace(url="http://engine", adapters=dict, answer=answer)
    gate = ExaminedAdapter(engine, "ada")
    with pytest.raises(EngineControlError, match="the check was cancelled"):
        gate.try_weights(str(versions[0]), 0, [[number] for number in range(99)], 4)
    assert len(asked) < 99
