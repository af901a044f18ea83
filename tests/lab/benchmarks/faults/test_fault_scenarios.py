"""Short forms of the fault scenarios: each has a gateway, simulated people, and a comparison with the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from claw_lab.benchmarks.faults import fault_bars, fault_table, faults, scenario_kinds
from claw_lab.benchmarks.faults.fault_scenarios import run_scenario
from claw_lab.benchmarks.faults.fault_table import is_well


@pytest.mark.parametrize("name", ["PostgreSQL stopped", "clock set", "disk full", "256 descriptors"])
def test_machine_faults_lose_no_answer_of_a_gateway(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario_kinds, "A_FEW", 6)
    monkeypatch.setattr(scenario_kinds, "DOWN_S", 1.0)
    result = run_scenario(name)
    if "skipped" in result:
        pytest.skip(result["skipped"])
    assert is_well(name, result), result
    assert result["seen"] >= 6
    if name == "disk full":
        assert set(result["failed"]) <= {"not_stored", "store_error"} and result["failed"]


def test_the_table_has_a_row_for_each_scenario(tmp_path: Path) -> None:
    talk = {"seen": 9, "lost": 0, "altered": 0, "failed": {"not_stored": 2}}
    found = {
        "planned restart": {"streams": 16, "broken": 0, "refused": 0},
        "disk full": talk,
        "log cut": talk | {"lost_with_the_log": 3, "failed": {}},
        "two launchers": {"status": 2, "undisturbed": True},
        "read-only": {"skipped": "no root"},
    }
    fault_table.note(tmp_path, "fault_scenarios", found)
    rows = fault_table.table(tmp_path).splitlines()[2:]
    lost = "lost, altered; requests that failed"
    assert rows == [
        "| planned restart: broken streams; refused | 0; 0 | 0 of 16; 0 | yes |",
        f"| disk full: {lost} | 0, 0; refused while it is full | 0 of 9, 0; 2 not_stored | yes |",
        f"| log cut: {lost} | 0, 0 afterwards; none | 0 of 9, 0; none; 3 lost with the log | yes |",
        "| two launchers: what the second one does | exit status 2 | exit status 2, the first goes on: True | yes |",
        f"| read-only: {lost} | 0, 0; none | not done: no root | - |",
    ]


def test_a_row_below_its_target_is_reported(tmp_path: Path) -> None:
    roles = {"gateway": {"kills": 2, "median_s": 0.5, "longest_s": 1.7, "refused": 0}}
    fault_table.note(tmp_path, "faults-00", {"load": 0, "roles": roles})
    kills = {
        "kills": 233,
        "answers_seen": 9,
        "lost": 0,
        "doubled": 0,
        "altered": 0,
        "trained_twice": 0,
        "orphans": 0,
    }
    fault_table.note(tmp_path, "many_kills", kills)
    rows = fault_table.table(tmp_path).splitlines()[2:]
    assert [row.endswith("| **no** |") for row in rows] == [True, True]


def test_recorded_measurements_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    well = {"kills": 1, "median_s": 0.5, "longest_s": 0.5, "refused": 0}
    fault_table.note(tmp_path, "faults-00", {"load": 0, "roles": {"gateway": well, "engine": well}})
    fault_table.note(
        tmp_path, "fault_scenarios", {"planned restart": {"streams": 16, "broken": 1, "refused": 0}}
    )
    asked: list[object] = []
    monkeypatch.setattr(faults, "measure", lambda *words: asked.append(words[0]) or True)
    assert fault_bars.killed(tmp_path, ("gateway", "engine"), 0, 1) and asked == []
    assert fault_bars.killed(tmp_path, ("gateway", "judge"), 0, 1) and asked == [("judge",)]
    assert not fault_bars.scenario_is_well(tmp_path, "planned restart"), "a stream was broken"
