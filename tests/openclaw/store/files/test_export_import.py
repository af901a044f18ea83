"""An exported and imported store is identical, to the last bit of a log-prob."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openclaw.errors import StoreError
from openclaw.store import RolloutStore, schema
from openclaw.store.files.exporting import export_lines
from openclaw.store.files.importing import import_lines
from openclaw.store.files.jsonl import HeaderLine, TurnLine, dump_line, read_line
from openclaw.types import Drop, Judgement, NewTurn, Turn, TurnState

MakeTurn = Callable[..., NewTurn]
MakeSample = Callable[..., Turn]


def _fill(store: RolloutStore, make_turn: MakeTurn, make_sample: MakeSample) -> None:
    """Adds one of everything that a store can contain."""
    make_sample(session_id="trained", person="ann", completion_log_probs=[-math.pi, -1e-300])
    store.samples.lease(0, 1)
    store.versions.weights_live(0, 1, None, False, "/checkpoints/1", "ab")
    # back to 0: the sample of version 1 is ready again
    store.versions.weights_live(-1, 0, None, True, None, None)
    make_sample(session_id="trained", person="ann")
    store.samples.lease(0, 1)
    store.versions.weights_live(0, 2, 0, False, "/checkpoints/2", "cd")
    for sample in store.samples.get([1, 2]):
        store.token_records.keep([{"sample": sample.id, "turn_id": sample.turn.id, "advantage": [0.5, None]}])
    make_sample(session_id="leased")
    store.samples.lease(1, 1)
    make_sample(session_id="ready")
    make_sample(session_id="dropped", drop="neutral_score")
    waiting = store.turns.record(make_turn(session_id="open", tools=[{"type": "function"}], parent_id="p"))
    store.feedback.record(completion_id=waiting.completion_id, text="äöü \u2028 \U0001f600")
    answered = store.turns.record(make_turn(session_id="open"))
    store.turns.answer(answered.id, [{"role": "tool", "content": None}])
    store.judgements.claim("w", 1, 60)
    store.turns.record(make_turn(session_id="side", state=TurnState.SIDE, completion_log_probs=[]))
    store.turns.record(make_turn(session_id="side", state=TurnState.UNTRAINABLE, state_reason="n"))
    store.turns.record(make_turn(session_id="expired"))
    store.sessions.end("expired")


def _write(store: RolloutStore, path: Path, **chosen: str) -> list[bytes]:
    lines = list(export_lines(store, **chosen))
    path.write_bytes(b"".join(lines))
    return lines


@pytest.fixture
def other(tmp_path: Path) -> Any:
    store = RolloutStore(tmp_path / "other")
    yield store
    store.close()


def test_peoples_preferences_are_included(
    store: RolloutStore, other: RolloutStore, tmp_path: Path, make_turn: MakeTurn
) -> None:
    turn = store.turns.record(make_turn(person="ann", memory=["earlier"]))
    store.turns.answer(turn.id, [{"role": "user", "content": "no"}])
    found = [Judgement(kind="hint", score=1.0, votes=[], judge="test", hints=["shorter, please"])]
    store.judgements.finish(turn.id, found, Drop("test"))
    (wish,) = store.memory.wishes()
    store.memory.hold(wish.id, 3, {"asked": 20})
    lines = _write(store, tmp_path / "all.jsonl")
    import_lines(other, tmp_path / "all.jsonl")
    assert other.memory.wishes() == store.memory.wishes() and list(export_lines(other)) == lines
    nobody = [json.loads(line) for line in lines]
    nobody[-1]["turn"]["person"] = None
    (tmp_path / "wrong.jsonl").write_text("\n".join(map(json.dumps, nobody)))
    with pytest.raises(StoreError, match="needs a person"):
        import_lines(other, tmp_path / "wrong.jsonl")


@pytest.mark.every_database
def test_an_exported_store_is_restored_exactly(
    store: RolloutStore, other: RolloutStore, tmp_path: Path, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    _fill(store, make_turn, make_sample)
    lines = _write(store, tmp_path / "all.jsonl")
    added = import_lines(other, tmp_path / "all.jsonl")
    assert added == {"sessions": 7, "turns": 10, "versions": 3, "known": 0}
    assert list(export_lines(other)) == lines
    assert other.status.counts() == store.status.counts() and other.versions.live() == 2
    for line in map(json.loads, lines):
        if line["kind"] == "turn":
            id_ = line["turn"]["id"]
            assert other.turns.get(id_) == store.turns.get(id_)
            assert other.judgements.of_turn(id_) == store.judgements.of_turn(id_)
            ours, theirs = store.samples.of_turn(id_), other.samples.of_turn(id_)
            assert (ours is None) == (theirs is None)
            if ours and theirs:
                assert dataclasses.replace(theirs, id=ours.id) == ours
    store.samples.commit_lease(1, version=3)
    other.samples.commit_lease(1, version=3)
    assert other.status.counts() == store.status.counts()


def test_an_imported_store_can_be_used_further(
    store: RolloutStore, tmp_path: Path, make_turn: MakeTurn, make_sample: MakeSample, other: RolloutStore
) -> None:
    """Row numbers of the database continue after the imported ones."""
    source = store.turns.record(make_turn(session_id="first"))
    _write(store, tmp_path / "one.jsonl")
    store.deletion.delete_session("first")
    assert import_lines(store, tmp_path / "one.jsonl")["turns"] == 1
    session = store.sessions.get("first")
    assert session is not None and session.turns == 1
    store.turns.answer(source.id, [{"role": "user", "content": "thanks"}])
    assert [turn.id for turn in store.judgements.claim("w", 1, 60)] == [source.id]
    make_sample(session_id="second")
    assert store.samples.ready_count() == 1


def test_importing_twice_adds_nothing(
    store: RolloutStore, tmp_path: Path, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    _fill(store, make_turn, make_sample)
    before = _write(store, tmp_path / "all.jsonl")
    assert import_lines(store, tmp_path / "all.jsonl") == {
        "sessions": 0,
        "turns": 0,
        "versions": 0,
        "known": 20,
    }
    assert list(export_lines(store)) == before


def test_one_session_or_one_person_can_be_exported(
    store: RolloutStore, other: RolloutStore, tmp_path: Path, make_turn: MakeTurn, make_sample: MakeSample
) -> None:
    _fill(store, make_turn, make_sample)
    _write(store, tmp_path / "part.jsonl", session_id="open")
    assert import_lines(other, tmp_path / "part.jsonl")["turns"] == 2
    _write(store, tmp_path / "part.jsonl", person="ann")
    assert import_lines(other, tmp_path / "part.jsonl") == {
        "sessions": 1,
        "turns": 2,
        "versions": 0,
        "known": 0,
    }


def _spoil(lines: list[bytes], number: int, **changes: object) -> bytes:
    broken = json.loads(lines[number - 1])
    broken["turn"] |= changes
    return b"".join([*lines[: number - 1], json.dumps(broken).encode() + b"\n", *lines[number:]])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"completion_ids": [1, "2"]}, r"line 4: turn\.turn\.completion_ids\.1: Input should be a valid int"),
        ({"completion_log_probs": [None, 0.1]}, r"line 4: turn\.turn\.completion_log_probs\.0: "),
        ({"state": "finished"}, r"line 4: turn\.turn\.state: "),
        ({"completion_ids": [1, 2, 3]}, r"2 log-probs for 3 completion ids"),
        ({"state": "judged"}, r"a judged turn needs a sample"),
        ({"turn_index": None}, r"turn_index is missing"),
    ],
)
def test_an_invalid_line_is_reported_and_nothing_is_imported(
    store: RolloutStore, tmp_path: Path, make_turn: MakeTurn, changes: dict[str, Any], message: str
) -> None:
    for _ in range(2):
        store.turns.record(make_turn())
    lines = _write(store, tmp_path / "good.jsonl")
    store.deletion.delete_session("s")
    (tmp_path / "bad.jsonl").write_bytes(_spoil(lines, 4, **changes))
    with pytest.raises(StoreError, match=message):
        import_lines(store, tmp_path / "bad.jsonl")
    assert store.status.counts()["turns"] == {} and store.sessions.get("s") is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json\n", r"line 1: Invalid JSON"),
        (b'{"kind":"diary"}\n', r"line 1: .*diary"),
        (b'{"kind":"store","format":99}\n', r"line 1: unsupported format 99"),
        (dump_line(HeaderLine()) * 2, r'line 2: kind: must be "store" in the first line'),
        (b'{"kind":"session","session":{}}\n', r"line 1: session\.session\."),
        (b"\xff\xfe\n", r"line 1: "),
    ],
)
def test_a_file_that_is_not_an_export_is_rejected(tmp_path: Path, content: bytes, message: str) -> None:
    store = RolloutStore(tmp_path)
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(StoreError, match=message):
        import_lines(store, tmp_path / "file")
    with pytest.raises(StoreError, match=r"cannot read .*missing: No such file"):
        import_lines(store, tmp_path / "missing")
    store.close()


@given(
    log_probs=st.lists(st.floats(max_value=0, allow_nan=False, allow_infinity=False), min_size=2, max_size=2),
    text=st.text(st.characters(exclude_categories=["Cs"])),
)
def test_any_number_and_text_round_trips_through_a_line(log_probs: list[float], text: str) -> None:
    turn = Turn(
        completion_id=text,
        session_id=text,
        messages=[{"role": "user", "content": text}],
        response_message={"role": "assistant", "content": text},
        prompt_ids=[1],
        completion_ids=[2, 3],
        completion_log_probs=log_probs,
        version_spans=[(0, 0, 2)],
        sampling={"temperature": 0.1},
        finish_reason="stop",
        transcript_digest="",
        turn_index=0,
    )
    line = TurnLine(turn=turn, judgements=[], feedback=[], sample=None)
    data = dump_line(line)
    assert data.count(b"\n") == 1 and read_line(data, "here") == line


def test_an_export_includes_every_table_of_the_schema() -> None:
    exported = {
        "session",
        "turn",
        "turn_body",
        "picture",
        "turn_picture",
        "judgement",
        "feedback",
        "memory",
        "sample",
        "token_record",
        "training",
        "weight_version",
    }
    left_out = {"schema_version", "dream"}
    assert {table.name for table in schema.metadata.sorted_tables} == exported | left_out
