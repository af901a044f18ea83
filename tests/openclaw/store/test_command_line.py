"""python -m openclaw.store"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from openclaw.store import RolloutStore
from openclaw.store.__main__ import main
from openclaw.types import NewTurn, Turn
from tests import MODEL


def _run(capsys: pytest.CaptureFixture[str], *args: object) -> Any:
    assert main([str(arg) for arg in args]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.every_database
def test_a_store_is_counted_exported_imported_and_emptied(
    tmp_path: Path, location: str, make_sample: Callable[..., Turn], capsys: pytest.CaptureFixture[str]
) -> None:
    make_sample(session_id="a", person="ann")
    make_sample(session_id="b")
    here = ["--rl-buffer-url" if "://" in location else "--rl-buffer-dir", location]
    there = ["--rl-buffer-dir", tmp_path / "copy"]
    file = tmp_path / "all.jsonl"
    assert _run(capsys, "stats", *here)["samples"] == {"ready": 2}
    assert _run(capsys, "export", *here, "--output", file) == {"lines": 5}
    assert file.stat().st_mode & 0o777 == 0o600 and len(list(tmp_path.glob("*.part"))) == 0
    assert _run(capsys, "import", *there, file)["turns"] == 2
    assert _run(capsys, "delete-session", *there, "b")["turns"] == 1
    assert _run(capsys, "delete-person", *there, "ann")["turns"] == 1
    assert _run(capsys, "purge", *here, "--retention-days", "1")["turns"] == 0
    assert _run(capsys, "stats", *there)["turns"] == {}


def test_a_store_in_use_is_listed_without_content_and_copied(
    tmp_path: Path, make_turn: Callable[..., NewTurn], capsys: pytest.CaptureFixture[str]
) -> None:
    store = RolloutStore(tmp_path)
    for person, session in (("ann", "a"), ("ann", "a"), ("bob", "b"), (None, "c")):
        store.turns.record(make_turn(person=person, session_id=session))
    here = ["--rl-buffer-dir", str(tmp_path)]

    def listed(*words: str) -> list[Any]:
        assert main([*words, *here]) == 0
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    assert [(one["id"], one["turns"]) for one in listed("sessions")] == [("c", 1), ("b", 1), ("a", 2)]
    assert [one["id"] for one in listed("sessions", "--person", "ann")] == ["a"]
    assert [(one["person"], one["turns"]) for one in listed("people")] == [("ann", 2), ("bob", 1)]
    (tmp_path / "copy").mkdir()
    assert listed("backup", str(tmp_path / "copy" / "buffer.db"))[0]["bytes"] > 0
    assert (tmp_path / "copy" / "buffer.db").stat().st_mode & 0o777 == 0o600
    copy = RolloutStore(tmp_path / "copy")
    assert copy.status.counts() == store.status.counts()
    copy.close()
    store.close()
    assert main(["backup", str(tmp_path / "copy" / "buffer.db"), *here]) == 2
    assert "already exists" in capsys.readouterr().err


def test_conversations_are_imported_for_a_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "talk.json"
    file.write_text(json.dumps({"session_id": "s", "turns": [{"prompt": "a", "response": "b"}]}))
    buffer = tmp_path / "new"
    counts = _run(capsys, "import-conversations", file, "--model-path", MODEL, "--rl-buffer-dir", buffer)
    assert counts == {"sessions": 1, "known": 0, "imported": 1}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["stats", "--rl-buffer-dir", "{}/missing"], "there is no buffer.db"),
        (["import", "{}/none.jsonl", "--rl-buffer-dir", "{}"], "cannot read"),
        (["delete-session", "ghost", "--rl-buffer-dir", "{}"], "no session 'ghost' in the buffer"),
        (["delete-person", "ghost", "--rl-buffer-dir", "{}"], "no person 'ghost' in the buffer"),
        (
            ["purge", "--retention-days", "-1", "--rl-buffer-dir", "{}"],
            "--retention-days must be 0 or more, not -1.0",
        ),
        (["export", "--output", "{}/no/folder", "--rl-buffer-dir", "{}"], "cannot write"),
        (["stats", "--rl-buffer-url", "mysql://x/y"], "use sqlite or postgresql"),
    ],
)
def test_errors_are_printed_in_one_line(
    tmp_path: Path, args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    RolloutStore(tmp_path).close()
    assert main([arg.replace("{}", str(tmp_path)) for arg in args]) == 2
    said = capsys.readouterr()
    assert said.err.count("\n") == 1 and message in said.err and said.out == ""
    assert not (tmp_path / "missing").exists()


def test_an_export_ends_quietly_when_its_reader_closes(
    tmp_path: Path, make_turn: Callable[..., NewTurn]
) -> None:
    store = RolloutStore(tmp_path)
    for _ in range(500):
        store.turns.record(make_turn())
    store.close()
    command = f"{sys.executable} -m openclaw.store export --rl-buffer-dir {tmp_path} | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=50, check=True)
    assert json.loads(done.stdout) == {"kind": "store", "format": 1} and done.stderr == ""
