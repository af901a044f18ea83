"""python -m openclaw.forget PERSON: deletes all data of a person, or one of the person's preferences.

Sends the request to a run's gateway. If the gateway has an admin key, it is read from OPENCLAW_ADMIN_KEY or from
`admin.key` in the run folder.
"""

from __future__ import annotations

import json
import sys
import urllib.parse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw_base.settings import command_line
from claw_base.settings.declare import REQUIRED, check, flag
from openclaw.chat.client import ChatError, Server
from openclaw.common.address import ServerAddress, admin_key_for
from openclaw.common.version import VERSION
from openclaw.common.visible import visible_line
from openclaw.forget.answer import as_lines

Json = dict[str, Any]

ABOUT = (
    "Deletes all stored data of a person, and the adapter that learned from this person alone. Weights that "
    "others use stay as they are; the output states what to do about them."
)


@dataclass(frozen=True, kw_only=True)
class ForgetSettings(ServerAddress):
    """Settings of one request to forget. Raises ConfigError."""

    person: str = flag(REQUIRED, "name of the person", positional=True)
    wish: int | None = flag(
        None, "Forget only this preference of the person (--wishes shows numbers)", unit="NUMBER"
    )
    wishes: bool = flag(False, "List the remembered preferences of the person and delete nothing")
    json: bool = flag(False, "Print the answer as JSON")
    admin_key: str | None = flag(
        None,
        "Admin key of the server (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )

    def __post_init__(self) -> None:
        check(self)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the server cannot be used or stores nothing about the person; 2 for an invalid
    command line; 3 if the trainer will do a part later, or requests of the person are still being answered."""
    parser = command_line.parser_of(ForgetSettings, "python -m openclaw.forget", ABOUT, VERSION)
    settings = command_line.loaded(parser, ForgetSettings, parser.parse_args(argv))
    server = None
    try:
        server = Server(settings.address(), None)
        key = admin_key_for(server.url, settings.admin_key, settings.run_dir)
        answer = _send(server, key, settings)
    except ChatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        if server is not None:
            server.close()
    print(json.dumps(answer) if settings.json else as_text(answer))
    return 3 if answer.get("status") == "waiting" or answer.get("running") else 0


def _send(server: Server, key: str | None, settings: ForgetSettings) -> Json:
    """Sends the request and returns the answer. Raises ChatError."""
    name = urllib.parse.quote(settings.person, safe="")
    if settings.wishes:
        return server.admin("GET", f"/admin/memory?person={name}", key)
    if settings.wish is not None:
        return server.admin("DELETE", f"/admin/memory/{settings.wish}?person={name}", key)
    return server.admin("DELETE", f"/admin/persons/{name}/content", key)


def as_text(answer: Json) -> str:
    """Returns the server's answer as text for a terminal."""
    if answer.get("object") == "list":
        return (
            "\n".join(f"{one['id']:>6}  {visible_line(one['text'])}" for one in answer["data"])
            or "no wishes are remembered"
        )
    if answer.get("object") == "wish":
        return f"wish {answer['id']} is forgotten, with its hints, samples and dreams; the conversation stays"
    return "\n".join([*as_lines(answer), f"{answer['seconds']:.1f} s"])


if __name__ == "__main__":
    sys.exit(main())
