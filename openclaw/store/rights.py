"""Access control for stored turns: the holder of the key that created a turn may access it.

Only keys protect turns; the field `user` of a request is a label. Clients that share a key can put any name in `user`,
so names do not protect them from each other. Imported turns, and turns stored before keys were recorded, have no key;
for these the person's name decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, case, or_, select

from openclaw.store import schema

NO_NAME = ""
"""Key name of a request with the common key, or with no key if the server requires none."""


@dataclass(frozen=True)
class Asker:
    """The sender of a request, for access control.

    Attributes:
        key_name: name of the request's key; NO_NAME for a key without a name, None for the administrator.
        person: the request's `user`, else the name of its key.
        names: whether this server has named client keys.
        claims: whether `user` is the name of another client's key; `person` is then the name of the own key.
    """

    key_name: str | None
    person: str | None = None
    names: bool = False
    claims: bool = False


ADMINISTRATOR = Asker(None)
"""The administrator, and local programs that open the store."""
NAMELESS = Asker(NO_NAME)


def asker_of(key_name: str | None, user: str | None, names: frozenset[str]) -> Asker:
    """Returns the sender of a client's request. A `user` that is the name of another key is ignored.

    Args:
        key_name: name of the request's key; None for a key without a name, or no key.
        user: the request's field `user`.
        names: names of all keys on this server.
    """
    claims = user is not None and user != key_name and user in names
    return Asker(key_name or NO_NAME, key_name if claims or user is None else user, bool(names), claims)


def may_use(asker: Asker, key_name: str | None, person: str | None) -> bool:
    """Returns whether the asker may read, continue, judge, end or delete a turn, or data derived from it.

    Args:
        key_name: name of the key that created the turn; None if it was not recorded.
        person: person of the turn.
    """
    if asker.key_name is None:
        return True
    if key_name is not None and key_name != asker.key_name:
        return False
    if asker.person is None:
        return person is None or not asker.names
    return person is None or person == asker.person


def usable(asker: Asker, table: Table = schema.turn) -> list[ColumnElement[bool]]:
    """Returns `may_use` as SQL conditions, which are never NULL, for a table with columns `key_name` and `person`."""
    if asker.key_name is None:
        return []
    key_name, person = table.c.key_name, table.c.person
    conditions: list[ColumnElement[bool]] = [or_(key_name.is_(None), key_name == asker.key_name)]
    if asker.person is not None:
        conditions.append(or_(person.is_(None), person == asker.person))
    elif asker.names:
        conditions.append(person.is_(None))
    return conditions


def of_person(person: str) -> ColumnElement[bool]:
    """Returns the SQL condition for a person's turns, as used by export and deletion.

    These are the turns with the person's name, and unnamed turns of the same key in sessions that the person began.
    """
    turn, session = schema.turn.c, schema.session.c
    same_key = or_(turn.key_name.is_(None), session.key_name.is_(None), turn.key_name == session.key_name)
    own_session = select(session.id).where(session.id == turn.session_id, session.person == person, same_key)
    return or_(turn.person == person, and_(turn.person.is_(None), own_session.exists()))


def owner_after(old: Any, new: Any) -> ColumnElement[Any]:
    """Returns a SQL expression for the person of a session after a new turn.

    An existing person stays. Otherwise a turn with the key that began the session sets the person.

    Args:
        old: columns of the stored session row.
        new: columns of the row to be inserted.
    """
    same_key = or_(old.key_name.is_(None), old.key_name == new.key_name)
    return case((and_(old.person.is_(None), same_key), new.person), else_=old.person)
