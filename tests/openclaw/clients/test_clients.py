"""One file per client: optional rules, and completeness of the list."""

from __future__ import annotations

import importlib
import re
import time
from typing import Any

import pytest

from openclaw.clients.client import Client, Clients, Head, Model, SideMark
from openclaw.clients.registry import CLIENTS
from openclaw.connect.settings import PRINTED, ConnectSettings
from openclaw.errors import ConfigError
from tests import ROOT

FORM = {"__init__", "client", "program_text", "registry"}
COPIED = 4
"""Number of clients in `copied_settings.py`, which share one file."""
NEW = Client(
    name="new",
    noise=(Head(re.compile(r"<stamp>")),),
    session_headers=("x-new-session",),
    side_marks=(SideMark("title", "last", "Write a title"),),
)


def test_every_file_is_one_listed_client_with_a_unique_name() -> None:
    files = {path.stem for path in (ROOT / "openclaw" / "clients").glob("*.py")} - FORM
    modules = [importlib.import_module(f"openclaw.clients.{name}") for name in sorted(files)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Client)]
    assert len(found) == len(files) - 1 + COPIED and {id(one) for one in found} == {
        id(one) for one in CLIENTS
    }
    assert len({client.name for client in CLIENTS}) == len(CLIENTS)


def test_a_client_without_rules_has_no_session_noise_or_side_turns() -> None:
    plain, messages = Client(name="plain"), [{"role": "user", "content": " Write a title"}]
    assert plain.clean(" text ") == " text "
    assert plain.session({"session_id": "s"}, {"messages": messages}) is None
    assert not plain.is_side(messages)


def test_a_new_client_needs_only_a_description_and_a_list_entry() -> None:
    title = [{"role": "user", "content": "<stamp>Write a title"}]
    assert not CLIENTS.is_side(title) and CLIENTS.session({"x-new-session": "s:3"}, {}) is None
    known = Clients((*CLIENTS, NEW))
    assert known.is_side(title) and known.clean("<stamp>hello ") == "hello"
    assert known.session({"x-new-session": "s:3"}, {}) == "s"


HEADERS = [{}, *({name: value} for name in sorted({
    *(one for client in CLIENTS for one in (*client.session_headers, *client.counted_headers)),
    *(mark.header for client in CLIENTS for mark in client.side_headers),
    *(client.offers_tools for client in CLIENTS if client.offers_tools),
}) for value in ("s:3", "s", ""))]  # fmt: skip
TEXTS = ("hello", "", "hi\n\nRuntime: agent=x | sessionId=s1", "<conversation>\na")
BODIES: list[dict[str, Any]] = [
    {**fields, "messages": [{"role": "system", "content": text}, {"role": "user", "content": text}]}
    for fields in ({}, *({name: "t:1"} for client in CLIENTS for name in client.session_fields))
    for text in TEXTS
]


@pytest.mark.parametrize("headers", HEADERS, ids=str)
def test_the_combined_rules_match_those_of_the_single_clients(headers: dict[str, str]) -> None:
    for body in BODIES:
        one_by_one = next(filter(None, (client.session(headers, body) for client in CLIENTS)), None)
        assert CLIENTS.session(headers, body) == one_by_one
        for has_tools in (True, False):
            named = any(client.has_side_headers(headers, has_tools) for client in CLIENTS)
            assert CLIENTS.is_side([], headers, has_tools) == named


@pytest.mark.parametrize("name", PRINTED)
def test_copyable_settings_contain_server_and_model_but_never_the_key(name: str) -> None:
    assert ConnectSettings(client=name).client == name
    told = PRINTED[name]("http://127.0.0.1:1/v1", Model("tiny", 1000, 100), "$SGLANG_API_KEY")
    assert "http://127.0.0.1:1/v1" in told and "SGLANG_API_KEY" in told
    assert "tiny" in told or name == "open-webui"


def test_a_client_without_settings_is_rejected() -> None:
    with pytest.raises(
        ConfigError,
        match="is not one of openclaw, claude, codex, hermes, opencode, openai, litellm, continue, open-webui",
    ):
        ConnectSettings(client="new")


def test_noise_rules_scan_a_long_text_once() -> None:
    began = time.monotonic()
    for text in (
        "Runtime: agent=" * 100_000 + "\nx",
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>" * 50_000,
        " " * 10**6,
    ):
        CLIENTS.clean(text)
    assert time.monotonic() - began < 1
