"""Measured numbers: content of a report, its display on pages, and the pages' agreement with reports."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from claw_lab.report.__main__ import main, stale
from claw_lab.report.measurement import Measurement, ReportError, read_run
from claw_lab.report.render import not_met, number, pages, results, table
from claw_lab.report.reports import read_reports
from tests import ROOT

ROW = {"id": "p50", "metric": "added at p50", "value": 1.9, "unit": "ms"}
GOAL = {"target": 2, "direction": "at most", "met": True}


def content(*rows: dict[str, object], **more: object) -> dict[str, object]:
    run: dict[str, object] = {"date": "2026-11-22", "title": "Gateway", "command": "bash x.sh"}
    return {**run, **more, "measurements": list(rows) or [ROW]}


def read(*rows: dict[str, object], name: str = "serving/gateway.2026-11-22", **more: object) -> Measurement:
    return read_run(name, content(*rows, **more)).measurements[0]


def write(folder: Path, name: str, text: dict[str, object]) -> None:
    path = folder / "lab" / "reports" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(text))


def repository(folder: Path, headlines: list[dict[str, str]] | None = None) -> Path:
    """Creates a folder with one report and the two pages that are generated from reports."""
    write(folder, "serving/gateway.2026-11-22", content({**ROW, **GOAL}))
    (folder / "instructions").mkdir()
    rows = headlines or [
        {"metric": "gateway", "measurement": "serving/gateway.2026-11-22#p50", "details": "x.md"}
    ]
    (folder / "lab" / "reports" / "headlines.json").write_text(json.dumps(rows))
    return folder


def test_the_repositorys_result_pages_match_its_reports() -> None:
    assert list(stale(ROOT)) == [], "run: python -m claw_lab.report"


def test_a_measurement_keeps_the_values_of_its_file() -> None:
    given = {**ROW, **GOAL, "interval": [1.8, 2.6], "interval_kind": "range", "n": 4, "note": "quiet"}
    one = read({**given, "conditions": {"load": "2"}})
    assert (one.value, one.unit, one.n, one.met, one.note) == (1.9, "ms", 4, True, "quiet")
    assert one.interval is not None and (one.interval.low, one.interval.high) == (1.8, 2.6)
    assert one.conditions == {"load": "2"}


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({**ROW, "colour": "red"}, "unknown key: colour"),
        ({"id": "p50", "metric": "added", "value": 1}, "p50: unit: missing"),
        ({**ROW, "unit": ""}, "unit: a number needs a unit"),
        ({**ROW, "value": True}, "a check .true or false. has the unit ''"),
        ({**ROW, "value": "fast"}, "value: expected a number"),
        ({"id": "p50", "metric": "added", "unit": "ms"}, "value: missing"),
        ({**ROW, **GOAL, "met": False}, "met: False contradicts 1.9 with target at most 2"),
        ({**ROW, **GOAL, "direction": "at least"}, "met: True contradicts"),
        ({**ROW, **GOAL, "direction": "below"}, "direction: 'below' is not one of"),
        ({**ROW, "target": 2, "direction": "at most"}, "met: None contradicts"),
        ({**ROW, "met": True}, "met: given without a target"),
        ({**ROW, "interval": [1, 2]}, "interval_kind: missing"),
        ({**ROW, "interval": [1, 2], "interval_kind": "guess"}, "interval_kind: 'guess' is not one of"),
        ({**ROW, "interval": [3, 2], "interval_kind": "range"}, "interval: 3 is above 2"),
        ({**ROW, "interval": [3], "interval_kind": "range"}, "interval: expected two numbers"),
        ({**ROW, "interval_kind": "range"}, "interval_kind: given without an interval"),
        ({**ROW, "n": 0}, "n: expected a count above 0"),
        ({**ROW, "conditions": {"weather": "fine"}}, "conditions: unknown key: weather"),
        ({**ROW, "conditions": {"cores": 2}}, "conditions: expected an object of texts"),
    ],
)
def test_an_invalid_measurement_is_rejected_with_its_location(row: dict[str, object], complaint: str) -> None:
    with pytest.raises(ReportError, match=complaint) as refused:
        read(row)
    assert str(refused.value).startswith("serving/gateway.2026-11-22#")


@pytest.mark.parametrize(
    ("name", "more", "complaint"),
    [
        ("weather/gateway.2026-11-22", {}, "expected AREA/NAME.YYYY-MM-DD"),
        ("serving/gateway", {}, "expected AREA/NAME.YYYY-MM-DD"),
        ("serving/gateway.2026-11-23", {}, "date: 2026-11-22 is not the date in the file name"),
        ("serving/gateway.2026-13-22", {"date": "2026-13-22"}, "date: month must be"),
        ("serving/gateway.2026-11-22", {"speed": 1}, "unknown key: speed"),
        ("serving/gateway.2026-11-22", {"command": ""}, "command: missing"),
    ],
)
def test_an_invalid_run_is_rejected(name: str, more: dict[str, object], complaint: str) -> None:
    with pytest.raises(ReportError, match=complaint):
        read(name=name, **more)


def test_two_measurements_with_the_same_id_are_rejected() -> None:
    with pytest.raises(ReportError, match="id given twice: p50"):
        read(ROW, ROW)


def test_a_check_passes_or_fails() -> None:
    check = {"id": "ends", "metric": "ends", "unit": "", "target": True, "direction": "at least"}
    assert read({**check, "value": True, "met": True}).met
    assert read({**check, "value": False, "met": False}).met is False


def test_superseded_results_appear_only_in_the_reports(tmp_path: Path) -> None:
    root = repository(tmp_path)
    old = content(
        {**ROW, "metric": "an old number"}, superseded="serving/gateway.2026-11-22", date="2026-11-20"
    )
    write(root, "serving/gateway.2026-11-20", old)
    reports = read_reports(root / "lab" / "reports")
    assert [run.id for run in reports.runs] == ["serving/gateway.2026-11-22", "serving/gateway.2026-11-20"]
    assert not any("an old number" in text for text in pages(reports).values())


def test_a_run_can_be_superseded_only_by_a_current_one(tmp_path: Path) -> None:
    root = repository(tmp_path)
    write(
        root, "serving/gateway.2026-11-20", content(date="2026-11-20", superseded="serving/other.2026-11-22")
    )
    with pytest.raises(ReportError, match=r"another current run, not serving/other\.2026-11-22"):
        read_reports(root / "lab" / "reports")


def test_a_headline_names_a_current_measurement(tmp_path: Path) -> None:
    headlines = [{"metric": "gateway", "measurement": "serving/gateway.2026-11-22#p99", "details": "x.md"}]
    with pytest.raises(ReportError, match="#p99 is not a current measurement"):
        read_reports(repository(tmp_path, headlines) / "lab" / "reports")


def test_a_result_has_one_number_per_cell_and_its_target() -> None:
    slow = {**ROW, "id": "p90", "value": 5250.0, **GOAL, "met": False, "note": "high | load"}
    run = read_run("serving/gateway.2026-11-22", content({**ROW, **GOAL, "n": 4}, slow))
    text = results([run])
    assert "### Gateway\n\n2026-11-22; `bash x.sh`\n" in text
    assert "| added at p50 | 1.9 | ms | 4 | at most 2 | yes |  |" in text
    assert r"| added at p50 | 5,250.0 | ms |  | at most 2 | **not met** | high \| load |" in text
    assert "| Gateway | added at p50 | 5,250.0 ms | at most 2 ms | 2026-11-22 | high" in not_met([run])
    assert "1.9" not in not_met([run])


@pytest.mark.parametrize(
    ("value", "shown"),
    [(True, "yes"), (23350, "23,350"), (0.98, "0.98"), (9.6e-7, "9.6e-7"), (1e-13, "1e-13"), (0, "0")],
)
def test_numbers_are_written_plainly(value: float, shown: str) -> None:
    assert number(value) == shown


def test_a_table_omits_empty_columns() -> None:
    assert table(["a", "b", "c"], [["1", "", "x"]]) == "| a | c |\n| --- | --- |\n| 1 | x |"


def test_the_command_writes_the_pages_that_the_check_requires(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = repository(tmp_path)
    assert main(["--check", "--root", str(root)]) == 1
    assert "instructions/numbers.md: out of date" in capsys.readouterr().err
    assert main(["--root", str(root)]) == 0
    assert main(["--check", "--root", str(root)]) == 0
    assert (
        "| gateway | 1.9 ms | at most 2 ms | yes | 2026-11-22 | [details](x.md) |"
        in (root / "instructions" / "numbers.md").read_text()
    )
    with (root / "lab" / "RESULTS.md").open("a") as page:
        page.write("by hand\n")
    assert main(["--check", "--root", str(root)]) == 1


def test_the_command_names_the_wrong_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = repository(tmp_path)
    (root / "lab" / "reports" / "serving" / "broken.2026-11-22.json").write_text("{")
    assert main(["--root", str(root)]) == 1
    assert "broken.2026-11-22.json: not JSON" in capsys.readouterr().err


def test_the_programs_that_current_reports_name_exist() -> None:
    reports = read_reports(ROOT / "lab" / "reports")
    commands = {
        command
        for run in reports.runs
        for command in (run.command, *(one.command for one in run.current()))
        if run.current()
    }
    modules = {found[1] for one in commands if (found := re.search(r"lab/run\.sh (\S+)", one))}
    scripts = {
        found[1] for one in commands if (found := re.search(r"(?:bash|python) ([\w./-]+\.(?:sh|py))", one))
    }
    places = {name: ROOT.joinpath("lab", "claw_lab", *name.split(".")) for name in modules}
    missing = [
        name
        for name, place in places.items()
        if not place.with_name(f"{place.name}.py").is_file() and not (place / "__main__.py").is_file()
    ]
    assert modules and missing + [name for name in scripts if not (ROOT / name).is_file()] == []
