"""Training values of every token: imported, found by turn, and deleted with their sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from openclaw.store import RolloutStore, token_records
from openclaw.trainer_hooks import lease, pipeline
from openclaw.types import Turn
from tests.fakes.hook_flags import hook_flags

MakeSample = Callable[..., Turn]


def record_of(store: RolloutStore, turn: Turn, **changes: object) -> dict[str, object]:
    sample = store.samples.of_turn(turn.id)
    assert sample is not None
    return {"sample": sample.id, "turn_id": turn.id, "version": 3, "advantage": [1.0, -1.0], **changes}


def write(folder: Path, rollout_id: int, *records: dict[str, object], end: bytes = b"") -> Path:
    (folder / "token_records").mkdir(exist_ok=True)
    path = folder / "token_records" / f"rollout-{rollout_id:06d}.jsonl"
    path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in records) + end)
    return path


def test_records_of_a_run_folder_are_imported_once(
    store: RolloutStore, make_sample: MakeSample, tmp_path: Path
) -> None:
    turn, other = make_sample(), make_sample()
    record = record_of(store, turn)
    path = write(
        tmp_path, 0, record, record_of(store, other, turn_id="another"), {"sample": 999, "turn_id": "gone"}
    )
    assert store.token_records.take(tmp_path) == 1 and not path.exists()
    assert store.token_records.of_turn(turn.id) == {name: v for name, v in record.items() if name != "sample"}
    assert store.token_records.of_turn(other.id) is None
    write(tmp_path, 1, {**record, "version": 4})
    assert store.token_records.take(tmp_path) == 1 and store.token_records.take(tmp_path) == 0
    assert (store.token_records.of_turn(turn.id) or {})["version"] == 4, (
        "of several steps the last one counts"
    )


def test_a_broken_file_is_skipped(store: RolloutStore, make_sample: MakeSample, tmp_path: Path) -> None:
    turn = make_sample()
    broken = write(tmp_path, 0, record_of(store, turn), end=b'{"sample": ')
    write(tmp_path, 1, record_of(store, turn))
    assert store.token_records.take(tmp_path) == 1 and not broken.exists()


@pytest.mark.parametrize("how", ["session", "feedback"])
def test_records_are_deleted_with_their_sample(
    store: RolloutStore, make_sample: MakeSample, how: str
) -> None:
    turn = make_sample()
    store.token_records.keep([record_of(store, turn)])
    if how == "session":
        store.deletion.delete_session(turn.session_id)
    else:
        store.feedback.record(completion_id=turn.completion_id, score=-1.0)
    with store.database.reading() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM token_record").scalar() == 0


def test_only_the_newest_samples_keep_their_records(
    store: RolloutStore, make_sample: MakeSample, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_records, "MOST_SAMPLES", 2)
    turns = [make_sample() for _ in range(4)]
    for turn in turns:
        store.token_records.keep([record_of(store, turn)])
    assert [store.token_records.of_turn(turn.id) is not None for turn in turns] == [False, False, True, True]


def test_records_of_a_batch_are_stored_when_its_weights_go_live(
    store: RolloutStore, location: str, make_sample: MakeSample, tmp_path: Path
) -> None:
    turn = make_sample()
    write(tmp_path, 0, record_of(store, turn))
    args = hook_flags(location, run_dir=str(tmp_path), rollout_batch_size=1)
    lease.on_weights_live(args, -1, 1, {"parent": 0, "restored": False, "path": None, "checksum": "c"})
    assert store.token_records.of_turn(turn.id) is not None
    pipeline._made.clear()
