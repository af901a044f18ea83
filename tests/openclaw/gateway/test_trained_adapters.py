"""Adapters that the run trains: their owners, the answering version, and the turns that train them."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_base.files import write_json
from claw_base.run_folder.orders import VersionOrders
from openclaw.dreaming.asking import Answer, Asked, Engines
from openclaw.engine.adapters import Adapter
from openclaw.engine.live_adapter import live_adapter
from openclaw.errors import ConfigError
from openclaw.gateway.canaries import LiveModel
from openclaw.settings import Settings
from openclaw.store import RolloutStore
from openclaw.types import FROZEN_BASE, TurnState
from openclaw.versions.__main__ import main
from tests.fakes.running_gateway import RunningGateway, StartGateway

HELLO = [{"role": "user", "content": "hello"}]
KEYS = {"ada": "key-ada", "bob": "key-bob", "": "secret-key"}
PER_KEY = {"api_keys": "ada=key-ada,bob=key-bob", "train_adapters": "per-key"}


@pytest.fixture
def gateway(start_gateway: StartGateway, tmp_path: Path) -> RunningGateway:
    found = start_gateway(run_dir=str(tmp_path), **PER_KEY)
    found.says("hello there")
    return found


def publish(run_dir: Path, name: str, version: int) -> Path:
    """Publishes a version like the trainer."""
    folder = run_dir / "checkpoints" / f"{name}-{version}"
    folder.mkdir(parents=True)
    home = run_dir / "policies" / name
    home.mkdir(parents=True, exist_ok=True)
    live = {"version": version, "path": str(folder), "checksum": "sum", "rollout_id": 0}
    write_json(home / "live_weights.json", live)
    return folder


def ask(gateway: RunningGateway, key: str, model: str | None = None) -> httpx.Response:
    headers = {"Authorization": f"Bearer {KEYS[key]}"}
    sent: dict[str, Any] = {"messages": HELLO, "max_tokens": 9} | ({"model": model} if model else {})
    return httpx.post(f"{gateway.url}/v1/chat/completions", json=sent, headers=headers, timeout=20)


def models(gateway: RunningGateway, key: str) -> list[str]:
    headers = {"Authorization": f"Bearer {KEYS[key]}"}
    return [one["id"] for one in httpx.get(f"{gateway.url}/v1/models", headers=headers).json()["data"]]


def test_each_named_key_is_answered_by_its_own_adapter(gateway: RunningGateway) -> None:
    base = gateway.app.state.gateway.model_name
    for key, others in (("ada", "bob"), ("bob", "ada")):
        own = f"{base}:{key}"
        assert models(gateway, key) == [base, own]
        for name in (None, base, own, "gpt-5"):
            answer = ask(gateway, key, name).json()
            turn = gateway.turn(answer["id"])
            assert (answer["model"], turn.policy_id) == (own, f"policy::{key}"), name
            assert (turn.state, turn.state_reason) == (TurnState.CAPTURED, None)
        assert ask(gateway, key, f"{base}:{others}").status_code == 404


def test_the_frozen_base_answers_unnamed_keys_whose_turns_are_not_trained(
    gateway: RunningGateway,
) -> None:
    base = gateway.app.state.gateway.model_name
    assert models(gateway, "") == [base]
    answer = ask(gateway, "", base).json()
    turn = gateway.turn(answer["id"])
    assert (answer["model"], turn.policy_id) == (base, "policy")
    assert (turn.state, turn.state_reason) == (TurnState.UNTRAINABLE, FROZEN_BASE)
    assert ask(gateway, "", f"{base}:ada").status_code == 404


def test_adapter_names_that_are_not_keys_are_open_to_all_clients(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway = start_gateway(run_dir=str(tmp_path), api_keys="ada=key-ada", train_adapters=" ada , team ")
    gateway.says("hello there")
    base = gateway.app.state.gateway.model_name
    assert models(gateway, "ada") == [base, f"{base}:ada", f"{base}:team"]
    assert models(gateway, "") == [base, f"{base}:team"]
    policies = [
        gateway.turn(ask(gateway, key, name).json()["id"]).policy_id
        for key, name in (("ada", None), ("ada", f"{base}:team"), ("", f"{base}:team"))
    ]
    assert policies == ["policy::ada", "policy::team", "policy::team"]


def test_the_base_answers_until_a_version_exists_then_the_newest_version(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    known = gateway.engine.adapters
    assert known is not None
    ask(gateway, "ada")
    assert gateway.engine.requests[-1].get("lora_path") is None and known == {}
    for version in (1, 2):
        folder = publish(tmp_path, "ada", version)
        known.clear()
        answer = ask(gateway, "ada").json()
        assert gateway.engine.requests[-1]["lora_path"] == "ada"
        loaded = {"lora_name": "ada", "lora_path": str(folder), "weight_version": str(version)}
        assert known == {"ada": loaded}, "an engine that lacks the adapter is given the live version"
        assert gateway.turn(answer["id"]).policy_id == "policy::ada"
    ask(gateway, "bob")
    assert gateway.engine.requests[-1].get("lora_path") is None


def test_the_status_lists_the_versions_of_the_keys_own_adapters(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    publish(tmp_path, "ada", 3)
    for key, shown in (("ada", {"ada": 3}), ("bob", {"bob": 0}), ("", {})):
        headers = {"Authorization": f"Bearer {KEYS[key]}"}
        assert httpx.get(f"{gateway.url}/status", headers=headers).json()["adapters"] == shown


@pytest.mark.parametrize("content", ["", "{}", '{"path": 1}', '{"path": "x", "version": "y"}', "[]"])
def test_the_base_answers_while_the_live_version_cannot_be_read(
    gateway: RunningGateway, tmp_path: Path, content: str
) -> None:
    publish(tmp_path, "ada", 1)
    (tmp_path / "policies" / "ada" / "live_weights.json").write_text(content)
    assert ask(gateway, "ada").status_code == 200
    assert gateway.engine.requests[-1].get("lora_path") is None


def test_versions_of_an_adapter_are_listed_and_rolled_back_by_its_name(
    gateway: RunningGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(tmp_path, "ada", 1)
    store = RolloutStore(tmp_path / "buffer")
    for version, parent in ((1, 0), (2, 1)):
        store.versions.weights_live(version, version, parent, False, "/gone", "sum", "trainer::ada")
    store.close()
    listed = gateway.http.get("/admin/versions", params={"adapter": "ada"}).json()
    assert listed["live"] == 2 and [one["version"] for one in listed["data"]] == [1, 2]
    assert gateway.http.get("/admin/versions").json()["data"] == []
    assert "ada v2" in gateway.http.get("/page/versions").text
    assert gateway.http.get("/admin/versions/2", params={"adapter": "ada"}).json()["parent"] == 1
    assert gateway.http.get("/admin/versions/2").status_code == 404
    for unknown in ("eve", "../ada"):
        assert gateway.http.get("/admin/versions", params={"adapter": unknown}).status_code == 404
    never = gateway.http.post("/admin/versions/unpin", params={"adapter": "bob"})
    assert never.status_code == 409, "it has no version yet, so nothing takes orders"
    orders = VersionOrders(tmp_path / "policies" / "ada")
    thread = threading.Thread(target=answer_one, args=(orders,), daemon=True)
    thread.start()
    words = ["--adapter", "ada", "--url", gateway.url, "rollback", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENCLAW_ADMIN_KEY", KEYS[""])
        assert main(words) == 0
    thread.join(20)
    assert json.loads(capsys.readouterr().out)["status"] == "done"


def answer_one(orders: VersionOrders) -> None:
    """Answers an order like the driver."""
    while (order := orders.next()) is None:
        threading.Event().wait(0.01)
    assert (order.action, order.version) == ("rollback", 1)
    orders.finish(order, None)


def test_dreams_and_test_questions_use_the_adapter_which_an_engine_loads_if_needed(
    gateway: RunningGateway, tmp_path: Path
) -> None:
    folder, known = publish(tmp_path, "ada", 1), gateway.engine.adapters
    assert known == {}
    live = live_adapter(tmp_path, "ada")

    async def ask_engines(adapter: Adapter | None) -> tuple[list[Answer | None], list[float | None]]:
        async with Engines([gateway.engine.url], [], adapter=adapter) as engines:
            return await engines.answers([Asked([5, 6], 4)]), await engines.log_probs([([5, 6], [7, 8])])

    for adapter, lora in ((live, "ada"), (None, None), (live_adapter(tmp_path, "bob"), None)):
        known.clear()
        gateway.engine.requests.clear()
        answers, log_probs = asyncio.run(ask_engines(adapter))
        assert answers[0] is not None and log_probs[0] is not None
        assert {one.get("lora_path") for one in gateway.engine.requests[-2:]} == {lora}
        loaded = {"lora_name": "ada", "lora_path": str(folder), "weight_version": "1"}
        assert known == ({"ada": loaded} if lora else {})
    model = LiveModel(gateway.app.state.gateway, gateway.app.state.gateway.trained.adapters["ada"])
    assert model.adapter == live


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_adapters": "per-key"}, "no client key has a name"),
        ({"train_adapters": " , "}, "names no adapter"),
        ({"train_adapters": "a b"}, "a name has no blank"),
        ({"train_adapters": "../x"}, "a name has no blank"),
        ({"train_adapters": ".x"}, "does not start with a dot"),
        ({"train_adapters": "ada~next"}, "none of .* ~ "),
        ({"train_adapters": "Ada,team", "api_keys": "ada=key"}, "write the name of the client key, ada"),
        ({"train_adapters": "ａｄａ", "api_keys": "ada=key"}, "write the name of the client key, ada"),
        ({"train_adapters": "ada", "adapter": ("ada=x",)}, "both have 'ada'"),
        ({"train_adapters": "ada", "policy_id": "p::q"}, "must not contain '::'"),
        ({"train_adapters": "ada", "enable_rl_intercept": False}, "nothing is learned from"),
    ],
)
def test_an_invalid_flag_value_is_rejected(changes: dict[str, Any], message: str) -> None:
    values = {"model_path": "x", "enable_rl_intercept": True, "rl_buffer_dir": "y"} | changes
    with pytest.raises(ConfigError, match=message):
        Settings(**values)


def test_orders_about_an_adapter_without_versions_do_not_ask_for_a_run_folder(
    gateway: RunningGateway,
) -> None:
    answer = gateway.http.post("/admin/versions/unpin", params={"adapter": "ada"})
    assert answer.status_code == 409
    assert answer.json()["error"]["message"] == "adapter 'ada' has no versions yet"
