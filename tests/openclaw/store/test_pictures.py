"""Pictures are stored once, with the turns that contain them, and deleted with the last of these."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import select

from openclaw.common.messages import Picture
from openclaw.errors import StoreError
from openclaw.store import RolloutStore, schema
from openclaw.store.files.exporting import export_lines
from openclaw.store.files.importing import import_lines
from openclaw.types import NewTurn, PlacedPicture

MakeTurn = Callable[..., NewTurn]
CAT, DOG = (Picture(b"cat" * 1000, "image/png"), Picture(b"dog" * 1000, "image/jpeg"))
PICTURES = {hashlib.sha256(one.data).hexdigest(): one for one in (CAT, DOG)}
CAT_NAME, DOG_NAME = PICTURES


def placed(*names: str) -> list[PlacedPicture]:
    return [PlacedPicture(3 * number, 2, 2, 4, name) for number, name in enumerate(names)]


def stored(store: RolloutStore) -> set[str]:
    with store.database.reading() as connection:
        return set(connection.scalars(select(schema.picture.c.sha256)))


@pytest.mark.every_database
def test_a_picture_is_stored_once_and_deleted_with_its_last_turn(
    store: RolloutStore, make_turn: MakeTurn
) -> None:
    store.turns.record(make_turn(person="ann", session_id="a", pictures=placed(CAT_NAME)), PICTURES)
    # the second turn of the conversation contains the first one's picture
    both = make_turn(person="ann", session_id="a", pictures=placed(CAT_NAME, DOG_NAME))
    turn = store.turns.record(both, {DOG_NAME: DOG})
    store.turns.record(make_turn(person="bob", session_id="b", pictures=placed(CAT_NAME)), PICTURES)
    assert store.turns.get(turn.id) == turn and turn.pictures == both.pictures
    assert store.pictures.named(PICTURES) == PICTURES
    store.deletion.delete_person("ann")
    assert stored(store) == {CAT_NAME}, "Bob sent the same picture"
    store.deletion.delete_person("bob")
    assert stored(store) == set()


def test_a_forgotten_picture_leaves_no_bytes_in_the_files(
    store: RolloutStore, make_turn: MakeTurn, location: str
) -> None:
    store.turns.record(make_turn(person="ann", pictures=placed(CAT_NAME)), PICTURES)
    files = list(Path(location).iterdir())
    assert any(CAT.data in file.read_bytes() for file in files)
    store.deletion.delete_person("ann")
    assert not any(b"catcatcat" in file.read_bytes() for file in Path(location).iterdir())


def test_retention_deletes_pictures(store: RolloutStore, make_turn: MakeTurn) -> None:
    turn = make_turn(turn_type="side", state="side", created_at=0.0, pictures=placed(CAT_NAME))
    store.turns.record(turn, PICTURES)
    assert store.deletion.purge(1)["turns"] == 1
    assert stored(store) == set()


def test_a_turn_without_its_picture_is_not_stored(store: RolloutStore, make_turn: MakeTurn) -> None:
    for pictures in ({}, {CAT_NAME: DOG}):
        with pytest.raises(StoreError, match="is missing"):
            store.turns.record(make_turn(pictures=placed(CAT_NAME)), pictures)
    assert store.status.counts()["turns"] == {} and stored(store) == set()


def test_pictures_are_exported_once_and_imported(
    store: RolloutStore, make_turn: MakeTurn, make_location: Callable[[], str], tmp_path: Path
) -> None:
    turns = [store.turns.record(make_turn(pictures=placed(CAT_NAME, DOG_NAME)), PICTURES) for _ in range(2)]
    lines = list(export_lines(store))
    assert sum(line.count(DOG.url().encode()) for line in lines) == 1
    file = tmp_path / "exported.jsonl"
    file.write_bytes(b"".join(lines))
    again = RolloutStore(make_location())
    import_lines(again, file)
    assert [again.turns.get(turn.id) for turn in turns] == turns
    assert again.pictures.named(PICTURES) == PICTURES
    again.close()
    file.write_bytes(b"".join(lines).replace(DOG.url().encode(), b"https://a.example/dog.png"))
    with pytest.raises(StoreError, match="not a data URL"):
        import_lines(RolloutStore(make_location()), file)
