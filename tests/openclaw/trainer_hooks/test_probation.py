"""The sequential test of newer versions: few false alarms, declines are detected, and the rollback is ordered
once."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

from openclaw.store import RolloutStore
from openclaw.store.versions import JudgedTurn
from openclaw.trainer_hooks.probation import alarm, e_value
from openclaw.types import Turn
from tests.fakes.hook_flags import hook_flags, pipeline_on


def stream(rng: random.Random, rate: float, count: int = 50) -> list[bool]:
    return [rng.random() < rate for _ in range(count)]


def test_equal_streams_cause_no_more_false_alarms_than_stated() -> None:
    rng = random.Random(0)
    for rate in (0.05, 0.3, 0.6):
        alarms = sum(e_value(stream(rng, rate), stream(rng, rate)) >= 1 / 0.05 for _ in range(2000))
        assert alarms / 2000 <= 0.05


def test_a_rise_of_complaints_from_20_to_75_percent_is_detected_within_a_block() -> None:
    rng = random.Random(1)
    seen = sum(e_value(stream(rng, 0.2), stream(rng, 0.75)) >= 2 / 0.01 for _ in range(300))
    assert seen / 300 > 0.9
    better = sum(e_value(stream(rng, 0.75), stream(rng, 0.2)) >= 2 / 0.01 for _ in range(300))
    assert better == 0, "an improvement is no alarm"


def test_complaints_and_unfinished_answers_are_compared() -> None:
    good, bad = [JudgedTurn(1, 1.0, False)] * 30, [JudgedTurn(2, -1.0, False)] * 20
    assert alarm(good, [], 0.01) is None and alarm([], bad, 0.01) is None
    assert alarm(good, bad, 0.01) == "complaints rose from 0% to 100%"
    assert alarm(bad, bad, 0.01) is None, "nothing got worse"
    lies = [JudgedTurn(2, -1.0, False, person="liar")] * 20
    assert alarm(good, lies, 0.01) is not None and alarm(good, lies, 0.01, {"liar"}) is None
    cut = [JudgedTurn(2, 1.0, True, person="liar")] * 20
    assert str(alarm(good, cut, 0.01, {"liar"})).startswith("answers cut"), "nobody says that"
    assert str(alarm(good, [JudgedTurn(2, 1.0, True)] * 20, 0.01)).startswith("answers cut")


def test_the_rollback_is_ordered_once_and_drops_the_turns(
    store: RolloutStore, make_sample: Callable[..., Turn], tmp_path: Path
) -> None:
    store.versions.weights_live(-1, 0, None, True, str(tmp_path), None)
    store.versions.weights_live(0, 1, 0, False, str(tmp_path), None)
    args = hook_flags(probation_turns=20, probation_false_alarms=0.01, run_dir=str(tmp_path))
    probation = pipeline_on(store, args).probation
    for version, score in ((0, 1.0), (1, -1.0)):
        for _ in range(20 if version == 0 else 19):
            turn = make_sample(reward=score)
            spans = [(version, 0, len(turn.completion_ids))]
            with store.database.transaction() as connection:
                from sqlalchemy import update

                from openclaw.store import schema
                from openclaw.store.rows import pack_json

                which = update(schema.turn_body).where(schema.turn_body.c.turn_id == turn.id)
                connection.execute(which.values(version_spans=pack_json(spans)))
        if version == 0:
            probation.watch()
            assert not (tmp_path / "version_order.json").exists()
    for _ in range(2):
        probation.watch()
    order = json.loads((tmp_path / "version_order.json").read_text())
    assert (order["action"], order["version"], order["drop_turns"]) == ("rollback", 0, True)
    assert order["reason"] == "probation: complaints rose from 0% to 100%"
    (tmp_path / "version_order.json").unlink()
    store.versions.roll_back(0, True, order["reason"])
    probation.watch()
    assert not (tmp_path / "version_order.json").exists(), "turns of undone versions do not count"
