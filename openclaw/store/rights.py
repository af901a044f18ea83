"""Access control for stored turns: the holder of the key that created a turn may access it. All other code uses these
functions.

Keys are access control; `user` is only a label. Clients with the same key may use any name in `user`, so names do not
protect them from each other. A turn that was imported, or stored before keys were recorded, has no key: then its
person's name decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, case, or_, select

from openclaw.store import schema

NO_NAME = ""
"""Key name of a request without a named key: the common key, or none if keys are not required."""


@dataclass(frozen=True)
class Asker:
    """The sender of a request, for access control.

    Attributes:
        key_name: of its key; NO_NAME for a key without a name, None for the administrator.
        person: whom the request names, or whose key it is.
        names: whether client keys have names on this server.
        claims: whether its `user` is the name of a key that it does not have; `person` is not that name then.
    """

    key_name: str | None
    person: str | None = None
    names: bool = False
    claims: bool = False


ADMINISTRATOR = Asker(None)
"""The administrator, and local programs that open the store."""
NAMELESS = Asker(NO_NAME)


def asker_of(key_name: str | None, user: str | None, names: frozenset[str]) -> Asker:
    """Returns the asker of a client's request. Only the key itself proves the name of a key: a `user` that is another
    key's name is ignored.

    Args:
        key_name: of its key; None for a key without a name, or no key.
        user: whom the request names.
        names: of all keys on this server.
    """
    claims = user is not None and user != key_name and user in names
    return Asker(key_name or NO_NAME, key_name if claims or user is None else user, bool(names), claims)


def may_use(asker: Asker, key_name: str | None, person: str | None) -> bool:
    """Returns whether the asker may read, continue, judge, end or delete a turn or data derived from it.

    Args:
        key_name: of the key that made the turn; None: not known.
        person: whom the turn names.
    """
    if asker.key_name is None:
        return True
    if key_name is not None and key_name != asker.key_name:
        return False
    if asker.person is None:
        return person is None or not asker.names
    return person is None or person == asker.person


def usable(asker: Asker, table: Table = schema.turn) -> list[ColumnElement[bool]]:
    """Returns `may_use` as SQL conditions for rows of a table with `key_name` and `person`; never NULL."""
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
    """Returns the condition for a person's turns for export and deletion: those with the person's name, and, in
    sessions that the person began, those of the same key without a name."""
    turn, session = schema.turn.c, schema.session.c
    same_key = or_(turn.key_name.is_(None), session.key_name.is_(None), turn.key_name == session.key_name)
    begun = select(session.id).where(session.id == turn.session_id, session.person == person, same_key)
    return or_(turn.person == person, and_(turn.person.is_(None), begun.exists()))


def owner_after(old: Any, new: Any) -> ColumnElement[Any]:
    """Returns the person of a session after another turn: an existing person stays; otherwise the key that began the
    session may set one. `old` and `new` are the columns of both rows."""
    same_key = or_(old.key_name.is_(None), old.key_name == new.key_name)
    return case((and_(old.person.is_(None), same_key), new.person), else_=old.person)
