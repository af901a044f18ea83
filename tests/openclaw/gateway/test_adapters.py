"""Adapters next to the model: named `MODEL:NAME`, stored with every turn, and never trained into the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import update

from openclaw.engine.adapters import Adapter
from openclaw.errors import ClientError, ConfigError, StoreError
from openclaw.gateway.adapter_versions import adapters_of
from openclaw.gateway.model_names import ModelNames
from openclaw.gateway.socket_supervisor import launched_engine
from openclaw.settings import Settings
from openclaw.store import RolloutStore, schema
from openclaw.types import OF_ADAPTER, TurnState, policy_of
from tests.fakes.running_gateway import RunningGateway, StartGateway
from tests.fakes.scripted_engine import FakeEngine

HELLO = [{"role": "user", "content": "hello"}]
KEYS = {"ada": "key-ada", "bob": "key-bob", "": "secret-key"}
NAMED = {"api_keys": "ada=key-ada,bob=key-bob"}


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Returns folders that look like adapters; the scripted engine reads none."""
    found = {name: tmp_path / f"lora-{name}" for name in ("ada", "bob", "team")}
    for name, folder in found.items():
        folder.mkdir()
        (folder / "adapter_config.json").write_text("{}")
        (folder / "adapter_model.safetensors").write_text(name)
    return found


@pytest.fixture
def flags(folders: dict[str, Path]) -> tuple[str, ...]:
    return tuple(f"{name}={folder}" for name, folder in folders.items())


@pytest.fixture
def gateway(start_gateway: StartGateway, flags: tuple[str, ...]) -> RunningGateway:
    found = start_gateway(adapter=flags)
    found.says("hello there")
    return found


def ask(
    gateway: RunningGateway, model: str, key: str = "", path: str = "chat/completions", **body: Any
) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS[key]}"}
    sent = {"model": model, "messages": HELLO, "max_tokens": 9} | body
    return httpx.post(f"{gateway.url}/v1/{path}", json=sent, headers=headers, timeout=20)


def models(gateway: RunningGateway, key: str = "") -> list[str]:
    headers = {"Authorization": f"Bearer {KEYS[key]}"}
    return [one["id"] for one in httpx.get(f"{gateway.url}/v1/models", headers=headers).json()["data"]]


def test_a_request_that_names_an_adapter_is_answered_by_it(gateway: RunningGateway) -> None:
    base = gateway.app.state.gateway.model_name
    assert models(gateway) == [base, f"{base}:ada", f"{base}:bob", f"{base}:team"]
    answers = {name: ask(gateway, name).json() for name in (base, f"{base}:ada", f"{base}:team")}
    assert [one["model"] for one in answers.values()] == list(answers)
    assert [one.get("lora_path") for one in gateway.engine.requests] == [None, "ada", "team"]
    turns = [gateway.turn(one["id"]) for one in answers.values()]
    assert [turn.policy_id for turn in turns] == ["policy", "policy::ada", "policy::team"]
    assert [(turn.state, turn.state_reason) for turn in turns] == [
        (TurnState.CAPTURED, None),
        *[(TurnState.UNTRAINABLE, OF_ADAPTER)] * 2,
    ]
    one = gateway.http.get(f"/v1/models/{base}:ada").json()
    assert (one["id"], one["parent"]) == (f"{base}:ada", base)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"stream": True}),
        ("completions", {"prompt": "hello", "messages": None}),
        ("messages", {}),
        ("responses", {"input": "hello", "messages": None, "max_tokens": None}),
    ],
)
def test_every_api_accepts_the_adapters_name(
    gateway: RunningGateway, path: str, body: dict[str, Any]
) -> None:
    name = f"{gateway.app.state.gateway.model_name}:bob"
    sent = {field: value for field, value in body.items() if value is not None}
    dropped = {field for field, value in body.items() if value is None}
    request = {"model": name, "messages": HELLO, "max_tokens": 9} | sent
    answer = httpx.post(
        f"{gateway.url}/v1/{path}", json={k: v for k, v in request.items() if k not in dropped}, timeout=20
    )
    assert answer.status_code == 200, answer.text
    assert f'"model":"{name}"' in answer.text.replace('": "', '":"')
    assert gateway.engine.requests[-1]["lora_path"] == "bob"


def test_an_engine_that_lost_its_adapters_loads_them_again(
    gateway: RunningGateway, folders: dict[str, Path]
) -> None:
    """For example after a restart. At the gateway's start it is asked to load all of them, before any request."""
    known = gateway.engine.adapters
    assert known is not None
    gateway.wait_for(lambda: len(known) == 3)
    known.clear()
    answer = ask(gateway, f"{gateway.app.state.gateway.model_name}:ada")
    assert answer.status_code == 200
    assert known == {"ada": {"lora_name": "ada", "lora_path": str(folders["ada"]), "weight_version": "0"}}


def test_sglang_gets_each_version_under_a_separate_name(
    start_gateway: StartGateway, engine: FakeEngine, flags: tuple[str, ...], folders: dict[str, Path]
) -> None:
    """SGLang replaces no adapter, and reports only the model's version."""
    engine.counts_adapters = False
    for version in (0, 1):
        gateway = start_gateway(adapter=flags)
        gateway.says("hello there")
        known = engine.adapters
        assert known is not None
        name = f"ada@{version}"
        gateway.wait_for(lambda known=known, name=name: name in known and "team@0" in known)
        assert known[name] == {"lora_name": name, "lora_path": str(folders["ada"])}
        if version:
            known.clear()
        answer = ask(gateway, f"{gateway.app.state.gateway.model_name}:ada").json()
        assert engine.requests[-1]["lora_path"] == name
        turn = gateway.turn(answer["id"])
        assert turn.version_spans == [(version, 0, len(turn.completion_ids))]
        gateway.stop()
        (folders["ada"] / "adapter_model.safetensors").write_text("retrained")


def test_errors_of_sglang_reach_the_client(gateway: RunningGateway) -> None:
    gateway.engine.refuse = "LoRA adapter 'ada' was requested, but LoRA is not enabled."
    answer = ask(gateway, f"{gateway.app.state.gateway.model_name}:ada")
    assert answer.status_code == 400 and "LoRA is not enabled" in answer.json()["error"]["message"]


def test_an_engine_without_adapter_support_is_rejected_at_once(gateway: RunningGateway) -> None:
    gateway.engine.adapters = None
    answer = ask(gateway, f"{gateway.app.state.gateway.model_name}:ada")
    assert answer.status_code == 400 and "does not support adapters" in answer.json()["error"]["message"]
    assert ask(gateway, "anything").status_code == 200


def test_a_missing_adapter_is_never_replaced_by_another(gateway: RunningGateway) -> None:
    base = gateway.app.state.gateway.model_name
    refused = ask(gateway, f"{base}:eve")
    assert refused.status_code == 404
    assert refused.json()["error"]["code"] == "model_not_found"
    assert refused.json()["error"]["message"].startswith(
        f"the model '{base}:eve' does not exist; this server has '{base}'"
    )
    assert ask(gateway, "gpt-5").json()["model"] == base
    assert len(gateway.engine.requests) == 1


def test_without_adapters_any_model_name_is_accepted(start_gateway: StartGateway) -> None:
    gateway = start_gateway()
    gateway.says("hello")
    base = gateway.app.state.gateway.model_name
    assert models(gateway) == [base]
    assert ask(gateway, f"{base}:latest").json()["model"] == base


def test_an_adapter_with_a_keys_name_is_only_for_that_key(
    start_gateway: StartGateway, flags: tuple[str, ...]
) -> None:
    gateway = start_gateway(adapter=flags, **NAMED)
    gateway.says("hello")
    base = gateway.app.state.gateway.model_name
    shown = {"ada": ["ada", "team"], "bob": ["bob", "team"], "": ["team"]}
    for key, names in shown.items():
        assert models(gateway, key) == [base, *(f"{base}:{name}" for name in names)]
        headers = {"Authorization": f"Bearer {KEYS[key]}"}
        for name in ("ada", "bob", "team"):
            status = 200 if name in names else 404
            assert ask(gateway, f"{base}:{name}", key).status_code == status, (key, name)
            found = httpx.get(f"{gateway.url}/v1/models/{base}:{name}", headers=headers)
            assert found.status_code == status
            if status == 404:
                shown_names = ", ".join(repr(one) for one in models(gateway, key))
                message = f"the model '{base}:{name}' does not exist; this server has {shown_names}"
                assert found.json()["error"]["message"] == message
    asked = [one.get("lora_path") for one in gateway.engine.requests]
    assert asked == ["ada", "team", "bob", "team", "team"]


def test_the_next_turn_may_use_another_adapter(gateway: RunningGateway) -> None:
    """One conversation with three policies: only the model's own answers are trained."""
    base = gateway.app.state.gateway.model_name
    messages, ids = list(HELLO), []
    for name in (base, f"{base}:ada", base, f"{base}:bob"):
        answer = ask(gateway, name, messages=messages, session_id="talk").json()
        ids.append(answer["id"])
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "No, shorter please."}]
    gateway.wait_for(lambda: gateway.turn(ids[2]).state is TurnState.ANSWERED)
    states = [gateway.turn(one).state for one in ids]
    assert states == [TurnState.ANSWERED, TurnState.UNTRAINABLE, TurnState.ANSWERED, TurnState.UNTRAINABLE]
    said = gateway.http.post("/v1/feedback", json={"completion_id": ids[1], "score": -1, "text": "Be brief."})
    assert said.json()["status"] == "recorded"
    claimed = gateway.store.judgements.claim("judge", 10, 60)
    assert [turn.completion_id for turn in claimed] == [ids[0], ids[2]]


def test_the_base_trainer_leases_no_turn_of_an_adapter(
    store: RolloutStore, make_sample: Any, make_turn: Any
) -> None:
    """Even if the store contained a sample of it."""
    with pytest.raises(StoreError, match="answers of adapters cannot be imported"):
        store.turns.record(make_turn(policy_id=policy_of("policy", "ada"), state=TurnState.IMPORTED))
    own, other = make_sample(), make_sample()
    with store.database.transaction() as connection:
        mine = schema.turn.c.id == other.id
        connection.execute(update(schema.turn).where(mine).values(policy_id=policy_of("policy", "ada")))
    assert store.samples.ready_count() == store.samples.leasable_count(4) == 1
    assert store.samples.leasable_count(4, share=0.5) == 1
    assert [one.id for one in store.gate_turns.liked(4)] == [own.id]
    assert [one.id for one in store.gate_turns.newest(4)] == [own.id]
    assert [one.turn.id for one in store.samples.lease(0, 4)] == [own.id]
    assert store.samples.lease(1, 4) == []
    store.samples.commit_lease(0, 1)
    assert [one.turn.id for one in store.samples.learned_before(5, 4)] == [own.id]


def test_the_same_weights_have_the_same_version_after_a_restart(
    model: Path, folders: dict[str, Path], flags: tuple[str, ...], tmp_path: Path
) -> None:
    def versions(**changes: object) -> list[int | None]:
        values = {"model_path": str(model), "adapter": flags} | changes
        return [one.version for one in adapters_of(Settings(**values)).values()]  # type: ignore[arg-type]

    recorded = {"enable_rl_intercept": True, "rl_buffer_dir": str(tmp_path)}
    weights = folders["bob"] / "adapter_model.safetensors"
    assert versions(**recorded) == versions(**recorded) == [0, 0, 0]
    weights.write_text("retrained")
    assert versions(**recorded) == [0, 1, 0]
    weights.write_text("bob")
    assert versions(**recorded) == [0, 0, 0]
    assert versions() == [None, None, None]
    (tmp_path / "adapters.json").write_text("[]")
    with pytest.raises(ConfigError, match="cannot read or write"):
        versions(**recorded)
    weights.unlink()
    with pytest.raises(
        ConfigError, match=r"is not a LoRA adapter: No such file or directory: adapter_model\.safetensors"
    ):
        versions(**recorded)


@pytest.mark.parametrize(
    ("adapter", "changes", "message"),
    [
        (("ada",), {}, "write NAME=FOLDER"),
        (("=x",), {}, "write NAME=FOLDER"),
        (("ada=",), {}, "write NAME=FOLDER"),
        (("a:b=x",), {}, "write NAME=FOLDER"),
        (("ada=x", "ada=y"), {}, "a name occurs twice"),
        (("ada=x",), {"policy_id": "p::q"}, "must not contain '::'"),
        ((), {"max_loaded_adapters": 8, "engine_url": ("http://x",)}, "is for a launched engine"),
        ((), {"max_loaded_adapters": 0}, "max-loaded-adapters"),
    ],
)
def test_an_invalid_adapter_flag_is_rejected(
    adapter: tuple[str, ...], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        Settings(model_path="x", adapter=adapter, **changes)


def test_the_launched_engine_holds_the_configured_number_of_adapters(model: Path) -> None:
    words = ["--max-loaded-adapters", "8"]
    for changes, expected in (({}, False), ({"max_loaded_adapters": 8}, True)):
        launched = launched_engine(Settings(model_path=str(model), **changes))  # type: ignore[arg-type]
        assert launched is not None
        at = launched.command.index(words[0]) if words[0] in launched.command else None
        assert (at is not None and launched.command[at : at + 2] == words) == expected


def test_an_adapters_name_is_never_answered_by_the_base_model() -> None:
    """Also after a start without `--adapter`, when the turns would otherwise be trained into the model."""
    names = ModelNames("claw", {}, (), strict=False)
    with pytest.raises(ClientError, match="claw:ada"):
        names.adapter("claw:ada", None)
    for other in ("claw:latest", "gpt-4", "llama3:8b", None):
        assert names.adapter(other, None) is None


@pytest.mark.parametrize(
    ("adapter", "keys", "owners"),
    [
        ("ada", ("ada", "bob"), {"ada"}),
        ("Ada", ("ada", "bob"), {"ada"}),
        ("ADA", ("Ada", "bob"), {"Ada"}),
        ("Ada", ("ada", "Ada", "bob"), {"Ada"}),
        ("Zoe\u0308", ("Zo\u00eb", "bob"), {"Zo\u00eb"}),
        ("team", ("ada", "bob"), {"ada", "bob", None}),
        ("ada2", ("ada", "bob"), {"ada", "bob", None}),
    ],
)
def test_an_adapter_belongs_to_the_key_of_its_name_in_any_spelling(
    adapter: str, keys: tuple[str, ...], owners: set[str | None]
) -> None:
    names = ModelNames("claw", {adapter: Adapter(adapter, "/x")}, keys, strict=False)
    for key in (*keys, None, "eve"):
        expected = key in owners or None in owners
        assert (f"claw:{adapter}" in names.usable(key)) == expected, key
        if not expected:
            with pytest.raises(ClientError):
                names.adapter(f"claw:{adapter}", key)
