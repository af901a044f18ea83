"""Tests the driver's table of adapters that one trainer trains in turn: the order, restarts after a kill, rollback
orders."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from claw_base.run_folder import forgetting
from claw_base.run_folder.forgetting import Forgetting
from claw_base.run_folder.orders import VersionOrders, answer_to, place
from slime.engines.client import EngineControlError
from slime.engines.embedded.adapters import read_adapter
from slime.errors import ConfigError
from slime.ray import forgetting as forgetting_of_driver
from slime.ray.forgetting import PeopleToForget
from slime.ray.versions import adapters
from slime.ray.versions.adapters import (
    ADAPTER,
    ADAPTER_REQUIRED,
    AdapterPublisher,
    AdapterTable,
    arguments_of,
    arguments_of_base,
)
from slime.weights.checkpoints import folder_of, make_latest
from slime.weights.update import Candidate
from slime.weights.versions import WeightVersion, artifact_folder, read_live, write_live
from tests.fakes.fixtures import MakeArgs
from tests.fakes.lora_folders import save_adapter
from tests.fakes.tiny_engine_model import save_model


class Trainers:
    """Records the calls of the trainer."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.calls.append((name, *words))

    def loaded(self) -> list[tuple[Any, ...]]:
        found = [call[1:] for call in self.calls if call[0] == "load_adapter"]
        self.calls.clear()
        return found


@pytest.fixture
def args(make_args: MakeArgs, tmp_path: Path) -> Any:
    return make_args(
        use_lora=True, lora_rank=4, train_adapters="per-key", run_dir=str(tmp_path / "run"),
        save=str(tmp_path / "run" / "checkpoints"), keep_versions=9,
        update_weight_disk_dir=str(tmp_path / "run" / "checkpoints" / "weights"),
    )  # fmt: skip


@pytest.fixture
def table(args: Any, tmp_path: Path) -> AdapterTable:
    return AdapterTable(args, base_of(args))


def base_of(args: Any) -> Any:
    nodes = SimpleNamespace(is_lost=lambda url: False, node_of=lambda url: None)
    run_dir = Path(args.run_dir)
    run_dir.mkdir(parents=True, exist_ok=True)
    return SimpleNamespace(
        engines=[], own_engines=[], external=None, nodes=nodes, orders=VersionOrders(run_dir),
        live=WeightVersion(0, "base", "sum"),
    )  # fmt: skip


@pytest.fixture
def written(args: Any, tmp_path: Path) -> Any:
    """f(name, rollout_id, version, live): writes the files of a training step, up to before or after its switch."""
    model = save_model(tmp_path / "model", seed=1, tie=False)

    def write(name: str, rollout_id: int, version: int, live: bool = True) -> Path:
        mine = arguments_of(args, name)
        weights = artifact_folder(Path(mine.update_weight_disk_dir), version)
        save_adapter(weights, model, version)
        checkpoint = folder_of(mine.save, rollout_id)
        shutil.copytree(weights, checkpoint)
        parent = version - 1 or None
        meta = {"rollout_id": rollout_id, "version": version, "parent": parent, "global_step": version}
        (checkpoint / "meta.json").write_text(json.dumps(meta))
        make_latest(checkpoint)
        home = Path(args.run_dir) / "policies" / name
        home.mkdir(parents=True, exist_ok=True)
        if live:
            found = read_adapter(str(weights))
            assert found is not None
            write_live(home, WeightVersion(version, str(weights), found.checksum))
        return checkpoint

    return write


def test_an_evicted_adapter_is_restored_from_its_checkpoint(
    table: AdapterTable, args: Any, written: Any
) -> None:
    trainers: Any = Trainers()
    folders = {name: Path(args.save) / "policies" / name for name in ("ada", "bob")}
    first = table.load(trainers, "ada", 0)
    assert trainers.loaded() == [(folders["ada"], None)]
    assert table.load(trainers, "ada", 1) is first and trainers.loaded() == []
    checkpoint = written("ada", 0, 1)
    table.load(trainers, "bob", 1)
    assert trainers.loaded() == [(folders["bob"], None)]
    assert table.load(trainers, "ada", 2) is first
    assert trainers.loaded() == [(folders["ada"], checkpoint)]


def test_after_a_failed_load_a_trainer_has_no_adapter(table: AdapterTable) -> None:
    def fail(*words: object) -> None:
        raise RuntimeError

    table.load(Trainers(), "ada", 0)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        table.load(SimpleNamespace(load_adapter=fail), "bob", 0)  # type: ignore[arg-type]
    trainers: Any = Trainers()
    table.load(trainers, "ada", 0)
    assert len(trainers.loaded()) == 1


def test_after_a_kill_every_adapter_serves_its_checkpoint(
    table: AdapterTable, args: Any, written: Any
) -> None:
    assert table.trained == -1
    written("ada", 0, 1)
    written("ada", 3, 2, live=False)
    written("bob", 2, 1)
    shutil.rmtree(Path(args.save) / "policies" / "bob" / "weights" / "v000001")
    again = AdapterTable(args, table.base)
    again.serve_checkpoints()
    assert again.trained == 3
    for name, version in (("ada", 2), ("bob", 1)):
        live = read_live(Path(args.run_dir) / "policies" / name)
        found = read_adapter(live.path) if live is not None else None
        assert live is not None and found is not None
        assert (live.version, live.checksum) == (version, found.checksum)
        publisher = again.of(name)
        assert publisher.numbers.next(publisher.newest) == version + 1, "numbers are never reused"


def test_an_adapter_whose_first_step_was_rejected_starts_again_untrained(
    table: AdapterTable, args: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoint contains the trainer's state, and no file of the base."""
    announced: list[Any] = []
    monkeypatch.setattr(AdapterPublisher, "announce", lambda self, candidate: announced.append(candidate))
    trainers: Any = Trainers()
    ada = table.of("ada")
    ada.save(trainers, Candidate(ada.live, 0, None))
    folder = folder_of(ada.save_dir, 0)
    assert trainers.calls == [("save", 0, 0, None, None, True, False)]
    folder.mkdir(parents=True)
    meta = {"rollout_id": 0, "version": 0, "parent": None, "global_step": 0}
    (folder / "meta.json").write_text(json.dumps(meta))
    make_latest(folder)
    again = AdapterTable(args, table.base)
    again.serve_checkpoints()
    assert again.trained == 0
    assert read_live(again.of("ada").home) is None, "the base answers"
    assert [(one.weights.version, one.rollout_id, one.restored) for one in announced] == [(0, 0, True)]
    assert again.of("ada").checkpoint == folder


def test_a_rollback_of_one_adapter_keeps_the_others(table: AdapterTable, args: Any, written: Any) -> None:
    trainers: Any = Trainers()
    first = written("ada", 0, 1)
    written("ada", 2, 2)
    written("bob", 1, 1)
    table.serve_checkpoints()
    ada = table.of("ada")
    for version in (1, 2):
        weights = artifact_folder(ada.files.weights_dir, version)
        found = read_adapter(str(weights))
        assert found is not None
        ada.files.remember(WeightVersion(version, str(weights), found.checksum))
    order = place(ada.home, "rollback", 1)
    assert table.execute_order(trainers, 2)
    assert answer_to(ada.home, order)["error"] is None  # type: ignore[index]
    assert ("return_to", first) in trainers.calls
    assert (ada.live.version, ada.checkpoint, ada.trained) == (1, first, 2)
    live = read_live(table.of("bob").home)
    assert live is not None and live.version == 1
    assert AdapterTable(args, table.base).trained == 2, "rollouts are counted on"


@pytest.mark.parametrize(
    ("action", "version", "message"),
    [("pin", 1, "pin is not supported for an adapter"), ("rollback", 9, "version 9 is no longer on disk")],
)
def test_an_order_that_cannot_be_carried_out_is_answered(
    table: AdapterTable, written: Any, action: str, version: int, message: str
) -> None:
    written("ada", 0, 1)
    table.serve_checkpoints()
    home = table.of("ada").home
    order = place(home, action, version)
    assert not table.execute_order(Trainers(), 0)  # type: ignore[arg-type]
    assert message in answer_to(home, order)["error"]  # type: ignore[index]


def test_an_order_about_the_base_is_answered(table: AdapterTable, args: Any) -> None:
    order = place(Path(args.run_dir), "rollback", 0)
    assert not table.execute_order(Trainers(), 0)  # type: ignore[arg-type]
    assert answer_to(Path(args.run_dir), order)["error"] == ADAPTER_REQUIRED  # type: ignore[index]


class Engine:
    """Serves adapters by name; `away`: it cannot be reached."""

    url, away = "http://engine", False

    def __init__(self, *names: str) -> None:
        self.names, self.flushed = list(names), 0

    def adapters(self) -> dict[str, Any]:
        if self.away:
            raise EngineControlError("no answer")
        return {name: {"weight_version": "1", "checksum": "sum"} for name in self.names}

    def unload_adapter(self, name: str) -> None:
        self.names.remove(name)

    def flush_cache(self) -> None:
        self.flushed += 1


def kept_of(args: Any, name: str) -> set[str]:
    """Returns the files of an adapter."""
    run_dir, save = Path(args.run_dir), Path(args.save)
    folders = (run_dir / "policies" / name, save / "policies" / name)
    return {path.name for folder in folders for path in folder.rglob("*") if not path.is_dir()}


@pytest.mark.parametrize("name", ["../../../victim", "/victim", "", "..", ".", "a/b"])
def test_an_adapter_has_no_folder_elsewhere(table: AdapterTable, tmp_path: Path, name: str) -> None:
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").touch()
    with pytest.raises(ConfigError, match="not a valid adapter name"):
        table.forget(cast(Any, Trainers()), name, 0)
    assert (tmp_path / "victim" / "precious").exists()


def test_resetting_an_adapter_keeps_two_counters_and_changes_no_other(
    args: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(adapters, "load_hook", lambda *words: lambda *words: told.append(words[1:]))
    monkeypatch.setattr(AdapterPublisher, "announce", lambda self, candidate: None)
    engine, trainers = Engine("ada", "ada~next", "ada~gate", "bob"), cast(Any, Trainers())
    base = base_of(args)
    base.engines = base.own_engines = [engine]
    table = AdapterTable(args, base)
    monkeypatch.setattr(AdapterPublisher, "switch", lambda self, candidate: None)
    written("ada", 0, 1)
    written("bob", 1, 1)
    written("ada", 2, 2)
    table.serve_checkpoints()
    table.of("ada").numbers.next(1)
    bobs = kept_of(args, "bob")
    first = table.load(trainers, "ada", 3)
    trainers.calls.clear()
    table.forget(trainers, "ada", 2)
    assert trainers.loaded() == [(first.save_dir, None)], "the trainer holds one that changes nothing"
    assert kept_of(args, "ada") == {"version_counter.json", "version_state.json"}
    assert kept_of(args, "bob") == bobs and engine.names == ["bob"]
    assert told == [(2, 2, {"forgotten": True})]
    again = AdapterTable(args, base)
    again.serve_checkpoints()
    assert again.trained == 2, "rollouts are counted on"
    assert again.of("ada").checkpoint is None and again.of("ada").numbers.next() == 3
    assert table.load(trainers, "ada", 3) is not first


def test_a_reset_adapter_is_unloaded_when_its_engine_responds_again(
    args: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also by the next driver, which removes a partly deleted checkpoint before it could be read."""
    monkeypatch.setattr(forgetting_of_driver, "RETRY_SECONDS", 0.0)
    engine, trainers = Engine("ada"), cast(Any, Trainers())
    base, run_dir = base_of(args), Path(args.run_dir)
    base.engines = base.own_engines = [engine]
    args.save_debug_rollout_data = str(run_dir / "rollouts" / "{rollout_id}.json")
    (run_dir / "rollouts").mkdir()
    for number in range(6):
        (run_dir / "rollouts" / f"{number}.json").write_text("{}")
    checkpoint = written("ada", 0, 1)
    (checkpoint / "meta.json").unlink()
    forgetting.write(run_dir, Forgetting("ada", "ada"))
    people, table = PeopleToForget(args), AdapterTable(args, base)
    assert people.carry_out(trainers, table, [engine], 1) == [], "the rows of the store come first"  # type: ignore[list-item]
    forgetting.write(run_dir, Forgetting("ada", "ada", [0], rows_deleted=True))
    engine.away = True
    assert people.carry_out(trainers, table, [engine], 1) == []  # type: ignore[list-item]
    assert forgetting.is_waiting(run_dir, "ada")
    engine.away = False
    done = PeopleToForget(args).carry_out(trainers, AdapterTable(args, base), [engine], 1)  # type: ignore[list-item]
    assert [one.person for one in done] == ["ada"] and not forgetting.is_waiting(run_dir, "ada")
    assert engine.names == [] and engine.flushed == 1
    assert sorted(path.name for path in (run_dir / "rollouts").iterdir()) == ["4.json", "5.json"]
    assert AdapterTable(args, base).trained == 1


def test_a_run_without_adapters_removes_those_of_an_earlier_start(args: Any, written: Any) -> None:
    """Its engines hold none, and may have no routes for them."""
    engine, trainers = Engine("ada"), cast(Any, Trainers())
    base, run_dir = base_of(args), Path(args.run_dir)
    engine.away = True
    base.engines = base.own_engines = [engine]
    written("ada", 0, 1)
    args.train_adapters = None
    forgetting.write(run_dir, Forgetting("ada", "ada", [], rows_deleted=True))
    done = PeopleToForget(args).carry_out(trainers, AdapterTable(args, base), [], 1)
    assert [one.person for one in done] == ["ada"] and trainers.calls == []
    assert kept_of(args, "ada") == {"version_state.json"}


def test_hooks_get_the_name_and_every_file_is_the_adapters_own(args: Any, tmp_path: Path) -> None:
    mine, save = arguments_of(args, "ada"), Path(args.save)
    assert vars(mine)[ADAPTER] == "ada" and ADAPTER not in vars(args)
    assert mine.save == str(save / "policies" / "ada")
    assert mine.update_weight_disk_dir == str(save / "policies" / "ada" / "weights")
    assert (mine.save_interval, mine.update_weights_interval) == (1, 1)
    args.update_weight_disk_dir = str(tmp_path / "fast")
    assert arguments_of(args, "ada").update_weight_disk_dir == str(tmp_path / "fast" / "policies" / "ada")
    args.gate = True
    assert not arguments_of_base(args).gate and arguments_of(args, "ada").gate
    args.train_adapters = None
    assert arguments_of_base(args) is args
