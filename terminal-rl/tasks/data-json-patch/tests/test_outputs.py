import json
from pathlib import Path

WANTED = {"name": "demo", "ports": {"http": 8080}, "tags": [], "limits": {"memory": {"soft": None}}}


def test_all_changes_are_applied_in_order():
    assert json.loads(Path("/app/settings.json").read_text()) == WANTED


def test_the_changes_are_untouched_beside_the_result():
    assert json.loads(Path("/app/settings.json").read_text())["ports"] == {"http": 8080}
    assert Path("/app/changes.jsonl").read_text().count("\n") == 7
