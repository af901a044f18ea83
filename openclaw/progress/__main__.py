"""python -m openclaw.progress: reports what the model learned from a person, and what it retained.

It sends held-out prompts to the live model and to the first model, while the server continues to serve. These
requests are not stored as turns, trained on or judged. Reports are stored in RUN_DIR/progress. A report made before
any learning also stores the first model's answers, for engines that can hold only one set of weights.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from claw_base.settings import command_line
from claw_base.settings.declare import check, flag
from openclaw.chat.client import ChatError, Server
from openclaw.common.address import ServerAddress, admin_key_for
from openclaw.common.version import VERSION
from openclaw.common.visible import visible
from openclaw.progress.asking import (
    Answers,
    Base,
    LiveModel,
    Model,
    Query,
    answering_adapter,
    asked,
    base_of,
)
from openclaw.progress.prompts import Item, all_items, chosen
from openclaw.progress.report import Measured, Row, Wish, as_json, rows_of, summary_of
from openclaw.progress.table import table
from openclaw.types import Message

NO_WISHES = 3
"""Exit status: no person has expressed a preference yet."""


@dataclass(frozen=True, kw_only=True)
class ProgressSettings(ServerAddress):
    """Which person and how many prompts to test. Raises ConfigError."""

    api_key: str | None = flag(None, "The server's client key", env=("SGLANG_API_KEY",))
    admin_key: str | None = flag(
        None,
        "Admin key of the server (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )
    person: str | None = flag(
        None, "Person whose wishes are measured, default: the person with the latest wish", unit="NAME"
    )
    adapter: str | None = flag(
        None,
        "Trained adapter to measure, default: the one that answers the client key",
        unit="NAME",
    )
    wish: tuple[str, ...] = flag((), "Wish to measure instead of the recorded ones; repeatable", unit="TEXT")
    sample: int = flag(
        24,
        "Prompts per class (wishes: per form and place); 0: all, about 1,400; default 24",
        unit="prompts",
        least=0,
    )
    max_tokens: int = flag(
        160, "Longest reply, default 160; a reply of 80 words must fit", unit="tokens", least=120, most=512
    )
    json: bool = flag(False, "Print the report as JSON")

    def __post_init__(self) -> None:
        check(self)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0; 1 if the server cannot be used; 2 for a wrong command line; 3 if no person has
    expressed a preference yet."""
    about = "What the model learned from a person and what it kept, before and now."
    parser = command_line.parser_of(ProgressSettings, "python -m openclaw.progress", about, VERSION)
    settings = command_line.loaded(parser, ProgressSettings, parser.parse_args(argv))
    server = None
    try:
        server = Server(settings.address(), settings.api_key)
        key = admin_key_for(server.url, settings.admin_key, settings.run_dir)
        return look(server, dataclasses.replace(settings, admin_key=key))
    except ChatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if server is not None:
            server.close()


def look(server: Server, settings: ProgressSettings) -> int:
    """Creates, stores and prints a report; returns the exit status. Raises ChatError."""
    items = chosen(all_items(), settings.sample)
    base_model = str(server.models()[0]["id"])
    adapter = measured_adapter(server, settings.adapter, base_model, items[0].messages)
    model, about = (base_model, {}) if adapter is None else (f"{base_model}:{adapter}", {"adapter": adapter})
    known = server.admin("GET", "/admin/progress", settings.admin_key, params=about)
    person, wish_rows = wishes_of(known["wishes"], settings.person)
    if settings.wish:
        wish_rows = [{"person": person, "text": text, "at": None} for text in settings.wish]
    live, ask = int(known["live"]), LiveModel(server, settings.max_tokens, model=adapter and model)
    if not wish_rows and live != 0:
        print(_nothing(settings.person, known["wishes"]), file=sys.stderr)
        return NO_WISHES
    _tell(f"asks {len(items)} prompts of {model} v{live}, for {person or 'people without a name'}")
    now = asked(ask, items)
    base = base_of(ask, settings.admin_key, items, live, now, about)
    wishes = [Wish(str(one["text"])) for one in wish_rows]
    prompted, how = _prompted(base, ask, items, wishes)
    measured = Measured(items, base.answers, now, prompted)
    rows = rows_of(measured, wishes)
    report = _report(model, live, settings, base, how, rows, summary_of(measured, wishes))
    _keep(server, settings.admin_key, report, now if live == 0 else None, about)
    if settings.json:
        print(
            json.dumps(
                {**report, "person": person, "wishes": wish_rows, "earlier": known["reports"]}, indent=1
            )
        )
    else:
        print(visible(table(report, wish_rows, known["reports"])))
    if not wish_rows:
        print(_nothing(settings.person, known["wishes"]), file=sys.stderr)
    return 0 if wish_rows else NO_WISHES


def measured_adapter(
    server: Server, named: str | None, base_model: str, messages: list[Message]
) -> str | None:
    """Returns the adapter to measure; None in a run that trains no adapters. Raises ChatError if the frozen base would
    be measured instead of an adapter, or if this key may not use the named one."""
    trained = server.status().get("adapters")
    if trained is None and named is None:
        return None
    adapter = answering_adapter(server, base_model, messages) if named is None else named
    if adapter is None:
        raise ChatError(
            "this run trains adapters, and its frozen base answers this key: set SGLANG_API_KEY to the key of a person, "
            "or name an adapter with --adapter"
        )
    if adapter not in (trained or {}):
        raise ChatError(f"no adapter {adapter!r} that this key may use is trained here")
    return adapter


def wishes_of(known: Sequence[dict[str, Any]], person: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """Returns a person and their preferences, oldest first; without a name, the person with the latest preference."""
    if person is None and known:
        person = known[-1]["person"]
    return person, [one for one in known if one["person"] == person]


def _prompted(
    base: Base, live: Model, items: Sequence[Item], wishes: Sequence[Wish]
) -> tuple[Answers | None, str]:
    """Returns the replies with all preferences in the prompt, and the name of the model that gave them. Raises
    ChatError."""
    if not wishes:
        return None, "nobody has asked for anything yet"
    texts = [wish.text for wish in wishes]
    if base.model is not None:
        return asked(base.model, items, texts), "the first model with all wishes in its prompt"
    return asked(
        live, items, texts
    ), "the live model with all wishes in its prompt (the first cannot be asked)"


def _report(
    model: str,
    live: int,
    settings: ProgressSettings,
    base: Base,
    prompted: str,
    rows: Sequence[Row],
    summary: dict[str, float],
) -> dict[str, Any]:
    """Returns the report to store, without the person's name and words."""
    return {
        "time": time.time(),
        "model": model,
        "live": live,
        "sample": settings.sample,
        "max_tokens": settings.max_tokens,
        "base": base.how,
        "prompted": prompted,
        "rows": as_json(rows),
        "summary": summary,
    }


def _keep(
    server: Server, admin_key: str | None, report: dict[str, Any], first: Answers | None, about: Query
) -> None:
    """Stores the report in the run folder, if the server has one. `first`: answers of version 0. Raises ChatError."""
    answers = {} if first is None else {"answers": {name: one.as_dict() for name, one in first.items()}}
    try:
        server.admin("POST", "/admin/progress", admin_key, json={**report, **answers}, params=about)
    except ChatError as error:
        if error.status != 409:
            raise
        _tell(f"the report is not saved: {error}")


def _nothing(person: str | None, known: Sequence[dict[str, Any]]) -> str:
    names = sorted({str(one["person"]) for one in known if one["person"] is not None})
    if person is not None and known:
        return f"{person} has not asked for anything yet; others have: {', '.join(names) or 'people without a name'}"
    return (
        'nobody has asked for anything yet: complain about an answer ("shorter, please"), and ask again when the '
        "judge has read it; or give --wish TEXT, also for a method without hints"
    )


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
