"""The pictures in prompts: their bytes, stored once for all turns that contain them, and deleted with the last one."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Collection, Iterable, Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select

from openclaw.common.messages import Picture
from openclaw.errors import StoreError
from openclaw.store import schema
from openclaw.store.database import Database, lock_transaction, slices
from openclaw.types import NewTurn, Turn


class PictureTable:
    """Reads stored pictures."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def named(self, names: Collection[str]) -> dict[str, Picture]:
        """Returns the stored ones of these pictures, by the SHA-256 of their bytes."""
        with self._database.reading() as connection:
            return read(connection, names)

    def urls_of(self, turns: Sequence[Turn]) -> dict[str, str]:
        """Returns data URLs of the pictures in the prompts of these turns, by the SHA-256 of their bytes."""
        with self._database.reading() as connection:
            return urls_of(connection, turns)


def read(connection: Connection, names: Collection[str]) -> dict[str, Picture]:
    """See `PictureTable.named`."""
    picture, stored = schema.picture.c, dict[str, Picture]()
    for part in slices(sorted(names)):
        rows = connection.execute(select(schema.picture).where(picture.sha256.in_(part)))
        stored |= {row.sha256: Picture(row.data, row.media_type) for row in rows}
    return stored


def urls_of(connection: Connection, turns: Iterable[Turn]) -> dict[str, str]:
    """See `PictureTable.urls_of`."""
    names = {one.sha256 for turn in turns for one in turn.pictures}
    return {name: picture.url() for name, picture in read(connection, names).items()}


def keep(connection: Connection, turn: NewTurn, pictures: Mapping[str, Picture]) -> None:
    """Stores the pictures of a new turn, in its transaction. Raises StoreError for a picture that is neither among
    `pictures` nor stored, or whose bytes do not match its name."""
    names = {one.sha256 for one in turn.pictures}
    if not names:
        return
    lock_transaction(connection)  # or a deletion could remove a picture that this turn begins to use
    stored = set(
        connection.scalars(select(schema.picture.c.sha256).where(schema.picture.c.sha256.in_(names)))
    )
    for name in sorted(names - stored):
        sent = pictures.get(name)
        if sent is None or hashlib.sha256(sent.data).hexdigest() != name:
            raise StoreError(f"turn {turn.id}: its picture {name} is missing")
        row = {"sha256": name, "media_type": sent.media_type, "data": sent.data, "created_at": time.time()}
        connection.execute(insert(schema.picture).values(row))
    uses = [{"turn_id": turn.id, "sha256": name} for name in sorted(names)]
    connection.execute(insert(schema.turn_picture), uses)


def delete_of(connection: Connection, turn_ids: Sequence[str]) -> None:
    """Deletes the pictures of these turns, except those that other turns contain."""
    use, picture = schema.turn_picture.c, schema.picture.c
    names = list(connection.scalars(select(use.sha256).where(use.turn_id.in_(turn_ids)).distinct()))
    connection.execute(delete(schema.turn_picture).where(use.turn_id.in_(turn_ids)))
    for part in slices(names):
        still_used = select(use.sha256).where(use.sha256 == picture.sha256).exists()
        connection.execute(delete(schema.picture).where(picture.sha256.in_(part), ~still_used))
