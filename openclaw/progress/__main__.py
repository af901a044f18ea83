"""Reports what the model learned from a person, and what it forgot: `python -m openclaw.progress`.

It sends held-out prompts to the live model and to version 0, while the server continues to serve. These requests are
not stored, judged or trained on. Reports are stored in RUN_DIR/progress. A report about version 0 also contains its
answers, for engines that cannot load version 0 later.
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
    base_of,
    replies_to,
)
from openclaw.progress.prompts import Item, all_items, chosen
from openclaw.progress.report import Measured, Row, Wish, as_json, rows_of, summary_of
from openclaw.progress.table import table
from openclaw.types import Message

NO_WISHES = 3
"""Exit status if no preference of the person is known."""


@dataclass(frozen=True, kw_only=True)
class ProgressSettings(ServerAddress):
    """Settings: the person, and the number of prompts. Raises ConfigError."""

    api_key: str | None = flag(None, "Client key of the server", env=("SGLANG_API_KEY",))
    admin_key: str | None = flag(
        None,
        "Admin key of the server (default: the key in the run folder)",
        env=("OPENCLAW_ADMIN_KEY",),
        variable_only=True,
    )
    person: str | None = flag(
        None,
        "Person whose preferences are measured, default: the one with the newest preference",
        unit="NAME",
    )
    adapter: str | None = flag(
        None,
        "Trained adapter to measure, default: the one that serves the client key",
        unit="NAME",
    )
    wish: tuple[str, ...] = flag(
        (), "Preference to measure instead of the recorded ones; repeatable", unit="TEXT"
    )
    sample: int = flag(
        24,
        "Prompts per class (opposite requests: per form and place); 0: all, about 1,400; default 24",
        unit="prompts",
        least=0,
    )
    max_tokens: int = flag(
        160, "Most tokens of a reply, default 160; 80 words must fit", unit="tokens", least=120, most=512
    )
    json: bool = flag(False, "Print the report as JSON")

    def __post_init__(self) -> None:
        check(self)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 for success, 1 if the server rejects requests or is unreachable, 2 for an invalid
    command line, 3 if no preference is known."""
    about = "Report what the model learned from a person, and what it forgot."
    parser = command_line.parser_of(ProgressSettings, "python -m openclaw.progress", about, VERSION)
    settings = command_line.loaded(parser, ProgressSettings, parser.parse_args(argv))
    server = None
    try:
        server = Server(settings.address(), settings.api_key)
        key = admin_key_for(server.url, settings.admin_key, settings.run_dir)
        return run_report(server, dataclasses.replace(settings, admin_key=key))
    except ChatError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        if server is not None:
            server.close()


def run_report(server: Server, settings: ProgressSettings) -> int:
    """Creates, stores and prints a report. Returns the exit status. Raises ChatError."""
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
        print(_no_wishes_message(settings.person, known["wishes"]), file=sys.stderr)
        return NO_WISHES
    _log(f"sending {len(items)} prompts to {model} v{live}, for {person or 'people without a name'}")
    now = replies_to(ask, items)
    check_reasoning(now, settings.max_tokens)
    base = base_of(ask, settings.admin_key, items, live, now, about)
    wishes = [Wish(str(one["text"])) for one in wish_rows]
    prompted, how = _prompted(base, ask, items, wishes)
    measured = Measured(items, base.answers, now, prompted)
    rows = rows_of(measured, wishes)
    report = _report(model, live, settings, base, how, rows, summary_of(measured, wishes))
    _store(server, settings.admin_key, report, now if live == 0 else None, about)
    if settings.json:
        print(
            json.dumps(
                {**report, "person": person, "wishes": wish_rows, "earlier": known["reports"]}, indent=1
            )
        )
    else:
        print(visible(table(report, wish_rows, known["reports"])))
    if not wish_rows:
        print(_no_wishes_message(settings.person, known["wishes"]), file=sys.stderr)
    return 0 if wish_rows else NO_WISHES


def check_reasoning(now: Answers, max_tokens: int) -> None:
    """Raises ChatError if most replies are empty and truncated: they end inside reasoning that cannot be disabled."""
    cut = sum(not reply.text and not reply.ended for reply in now.values())
    if 2 * cut > len(now):
        raise ChatError(
            f"{cut} of {len(now)} replies end inside the reasoning, after {max_tokens} tokens (--max-tokens): the chat "
            "template of this model does not disable reasoning, so nothing can be measured"
        )


def measured_adapter(
    server: Server, named: str | None, base_model: str, messages: list[Message]
) -> str | None:
    """Returns the adapter to measure; None in a run that trains no adapters.

    Raises ChatError if the client key is served by the base model, which is not trained, or may not use the adapter.
    """
    trained = server.status().get("adapters")
    if trained is None and named is None:
        return None
    adapter = answering_adapter(server, base_model, messages) if named is None else named
    if adapter is None:
        raise ChatError(
            "this run trains adapters, but the client key is served by the base model: set SGLANG_API_KEY to the key "
            "of a person, or pass --adapter"
        )
    if adapter not in (trained or {}):
        raise ChatError(
            f"--adapter {adapter}: no such adapter is trained on this server, or the client key may not use it"
        )
    return adapter


def wishes_of(known: Sequence[dict[str, Any]], person: str | None) -> tuple[str | None, list[dict[str, Any]]]:
    """Returns a person and their preferences, oldest first; by default, the person with the newest preference."""
    if person is None and known:
        person = known[-1]["person"]
    return person, [one for one in known if one["person"] == person]


def _prompted(
    base: Base, live: Model, items: Sequence[Item], wishes: Sequence[Wish]
) -> tuple[Answers | None, str]:
    """Returns the replies with all preferences in the prompt, and a description of the model that gave them.

    Raises ChatError.
    """
    if not wishes:
        return None, "no preferences yet"
    texts = [wish.text for wish in wishes]
    if base.model is not None:
        return replies_to(base.model, items, texts), "version 0 with all preferences in its prompt"
    return replies_to(
        live, items, texts
    ), "the live model with all preferences in its prompt (version 0 is not available)"


def _report(
    model: str,
    live: int,
    settings: ProgressSettings,
    base: Base,
    prompted: str,
    rows: Sequence[Row],
    summary: dict[str, float],
) -> dict[str, Any]:
    """Returns the report to store, without the name of the person and the text of preferences."""
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


def _store(
    server: Server, admin_key: str | None, report: dict[str, Any], first: Answers | None, about: Query
) -> None:
    """Stores the report in the run folder, if the server has one. `first`: answers of version 0. Raises ChatError."""
    answers = {} if first is None else {"answers": {name: one.as_dict() for name, one in first.items()}}
    try:
        server.admin("POST", "/admin/progress", admin_key, json={**report, **answers}, params=about)
    except ChatError as error:
        if error.status != 409:
            raise
        _log(f"the report was not saved: {error}")


def _no_wishes_message(person: str | None, known: Sequence[dict[str, Any]]) -> str:
    names = sorted({str(one["person"]) for one in known if one["person"] is not None})
    if person is not None and known:
        others = ", ".join(names) or "people without a name"
        return f"no preferences of {person} are known; there are preferences of: {others}"
    return (
        'no preferences are known yet: complain about an answer ("shorter, please"), and run this again after the '
        "turn was judged; or pass --wish TEXT, which is required for methods without hints"
    )


def _log(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
