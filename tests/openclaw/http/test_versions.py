"""Weight versions over HTTP and at the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from claw_base.run_folder.orders import VersionOrder, VersionOrders
from openclaw.store import RolloutStore
from openclaw.versions.__main__ import main
from openclaw.versions.comparison import relation
from slime.ray.versions.orders import left_over
from tests.fakes.running_gateway import RunningGateway, StartGateway
from tests.fakes.scripted_engine import FakeEngine


@contextmanager
def driver(run_dir: Path, error: str | None = None) -> Iterator[list[VersionOrder]]:
    """Answers orders like the driver of a run."""
    orders, done, ended = VersionOrders(run_dir), [], threading.Event()

    def watch() -> None:
        while not ended.wait(0.02):
            if (order := orders.next()) is not None:
                done.append(order)
                orders.finish(order, order.version if order.action == "pin" else None, error, 0.1)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield done
    finally:
        ended.set()
        thread.join()


@pytest.fixture
def gateway(start_gateway: StartGateway, tmp_path: Path) -> Any:
    """Version 1 is live after 0; version 2 was rejected."""
    gateway = start_gateway(run_dir=str(tmp_path))
    store = RolloutStore(tmp_path / "buffer")
    store.versions.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1", details={"metrics": {"train/loss": 1.5}})
    why = {"reason": "KL is 9", "stage": "likelihood", "measurements": {"kl": 9.0}}
    store.versions.weights_rejected(1, 2, 1, None, why)
    store.close()
    return gateway


def test_versions_are_listed_with_status_lineage_and_reason(gateway: RunningGateway) -> None:
    found = gateway.http.get("/admin/versions").json()
    assert (found["live"], found["pinned"]) == (1, None)
    brief = [(one["version"], one["parent"], one["status"], one["on_disk"]) for one in found["data"]]
    assert brief == [(0, None, "superseded", True), (1, 0, "live", False), (2, 1, "rejected", False)]
    assert found["data"][2]["reason"] == "KL is 9" and found["data"][2]["measurements"] == {"kl": 9.0}
    one = gateway.http.get("/admin/versions/1").json()
    assert one["object"] == "version" and one["metrics"] == {"train/loss": 1.5}
    assert gateway.http.get("/admin/versions/9").status_code == 404
    assert gateway.http.get("/admin/versions/x").status_code == 404


def test_the_driver_carries_out_a_rollback(gateway: RunningGateway, tmp_path: Path) -> None:
    with driver(tmp_path) as done:
        answer = gateway.http.post("/admin/versions/0/rollback", json={"drop_turns": True})
        pinned = gateway.http.post("/admin/versions/1/pin").json()
        assert gateway.http.get("/admin/versions").json()["pinned"] == 1
        assert gateway.http.post("/admin/versions/unpin").json()["status"] == "done"
        again = gateway.http.post("/admin/versions/unpin")
        assert again.status_code == 409 and again.json()["error"]["message"] == "no version is pinned"
    assert answer.json() == {"action": "rollback", "version": 0, "status": "done", "seconds": 0.1}
    assert pinned["status"] == "done"
    assert [(order.action, order.version, order.drop_turns) for order in done] == [
        ("rollback", 0, True),
        ("pin", 1, False),
        ("unpin", None, False),
    ]


def test_an_order_rejected_by_the_driver_has_a_reason(gateway: RunningGateway, tmp_path: Path) -> None:
    with driver(tmp_path, error="version 1 is no longer on disk"):
        answer = gateway.http.post("/admin/versions/1/rollback")
    assert answer.status_code == 409 and "no longer on disk" in answer.json()["error"]["message"]


@pytest.mark.parametrize("action", ["rollback", "pin"])
def test_an_order_for_an_unknown_version_is_rejected(
    gateway: RunningGateway, tmp_path: Path, action: str
) -> None:
    """The driver would cancel an update for it."""
    answer = gateway.http.post(f"/admin/versions/7/{action}")
    assert answer.status_code == 404 and "there is no version 7" in answer.json()["error"]["message"]
    assert not (tmp_path / "version_order.json").exists()


def test_an_order_pending_at_the_servers_stop_is_answered_with_its_outcome(
    start_gateway: StartGateway, tmp_path: Path
) -> None:
    gateway, answers = start_gateway(run_dir=str(tmp_path)), []
    gateway.store.versions.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    asking = threading.Thread(
        target=lambda: answers.append(gateway.http.post("/admin/versions/0/rollback", timeout=60))
    )
    asking.start()
    gateway.wait_for((tmp_path / "version_order.json").exists, timeout_s=60)
    gateway.stop()
    asking.join(60)
    [answer] = answers
    assert answer.status_code == 503
    assert answer.json()["error"]["message"] == (
        "the server is stopping; rollback 0 will be executed at the next start; to cancel it, delete "
        f"{tmp_path}/version_order.json"
    )
    assert left_over(VersionOrders(tmp_path)) == (
        "an order from before this start is carried out now: rollback 0 (by hand)"
    )


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://127.0.0.1:9999"}, {"Sec-Fetch-Site": "same-site"}, {"Sec-Fetch-Site": "cross-site"}],
)
def test_a_page_on_another_port_cannot_change_versions(
    gateway: RunningGateway, tmp_path: Path, headers: dict[str, str]
) -> None:
    answer = gateway.http.post("/admin/versions/0/rollback", headers=headers)
    assert answer.status_code == 403 and "other origins" in answer.json()["error"]["message"]
    assert not (tmp_path / "version_order.json").exists()


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1, 2]"])
def test_the_command_reports_a_changed_prompt(
    body: bytes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answering = httpx.MockTransport(lambda request: httpx.Response(200, content=body))
    client = httpx.Client
    monkeypatch.setattr(
        "openclaw.versions.__main__.httpx.Client", lambda **more: client(**more, transport=answering)
    )
    assert main(["--url", "http://127.0.0.1:9", "list"]) == 2
    assert "is not a server of OpenClaw-RL" in capsys.readouterr().err


def test_a_key_that_is_invalid_in_a_header_is_reported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENCLAW_ADMIN_KEY", "schlüssel€")
    assert main(["--url", "http://127.0.0.1:9", "list"]) == 2
    assert "OPENCLAW_ADMIN_KEY" in capsys.readouterr().err


def test_a_second_order_is_rejected_while_one_is_pending(gateway: RunningGateway, tmp_path: Path) -> None:
    (tmp_path / "version_order.json").write_text(json.dumps({"action": "pin", "version": 1}))
    answer = gateway.http.post("/admin/versions/0/rollback")
    assert answer.status_code == 409 and "pin 1" in answer.json()["error"]["message"]


def test_the_command_lists_versions_and_reports_errors(
    gateway: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--url", gateway.url]) == 0
    without = capsys.readouterr().out
    assert main(["--url", gateway.url, "list"]) == 0
    listed = capsys.readouterr().out
    assert listed == without
    lines = listed.splitlines()
    assert lines[0] == "live 1" and "rejected" in lines[3] and lines[3].endswith("KL is 9")
    assert main(["--url", gateway.url, "release", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 2, "released": 0}
    for command in ("release", "delete"):
        assert main(["--url", gateway.url, command, "4711"]) == 2
        assert capsys.readouterr().err == "openclaw.versions: there is no version 4711\n"
    assert main(["--url", gateway.url, "unpin"]) == 2
    assert capsys.readouterr().err == "openclaw.versions: no version is pinned\n"
    assert main(["--url", gateway.url, "show", "9"]) == 2
    assert "there is no version 9" in capsys.readouterr().err
    assert main(["--url", "http://127.0.0.1:9", "list"]) == 2


@pytest.fixture
def two_on_disk(start_gateway: StartGateway, tmp_path: Path, engine: FakeEngine) -> RunningGateway:
    """Versions 0 and 2 are on disk, 2 descends from 1, and they give different answers."""
    gateway = start_gateway(run_dir=str(tmp_path))
    store = RolloutStore(tmp_path / "buffer")
    store.versions.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    store.versions.weights_live(0, 1, 0, False, "/gone", "sum-1", details={"measurements": {"kl": 0.01}})
    store.versions.weights_live(
        1, 2, 1, False, str(tmp_path), "sum-2", details={"measurements": {"kl": 0.02, "right": 1.0}}
    )
    store.close()
    for version, text in ((0, "It is four."), (2, "4")):
        engine.tries[version] = gateway.says(text)
    return gateway


def test_two_versions_are_compared_by_the_changes_between_them(
    two_on_disk: RunningGateway, capsys: pytest.CaptureFixture[str]
) -> None:
    found = two_on_disk.http.get("/admin/versions/diff?a=0&b=2").json()
    assert (found["common"], found["only_a"]) == (0, [])
    assert [one["version"] for one in found["only_b"]] == [1, 2]
    assert found["only_b"][0] == {"version": 1, "turns": 0, "good": 0, "bad": 0}
    assert found["measurements"] == {"kl": [None, 0.02], "right": [None, 1.0]}
    assert two_on_disk.http.get("/admin/versions/diff?a=0&b=9").status_code == 404
    assert main(["--url", two_on_disk.url, "diff", "0", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("version 0 (superseded), version 2 (live): 2 descends from 0\n")
    assert "on the way to 2: version 1 learned from 0 turns" in out


def test_a_version_without_a_parent_is_compared(
    start_gateway: StartGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway(run_dir=str(tmp_path))
    store = RolloutStore(tmp_path / "buffer")
    store.versions.weights_live(-1, 3, None, True, "/gone", "sum-3")
    store.versions.weights_live(0, 7, None, True, "/gone", "sum-7")
    store.close()
    assert main(["--url", gateway.url, "diff", "3", "7"]) == 0
    assert capsys.readouterr().out.splitlines()[0].endswith(": no common ancestor is recorded")


@pytest.mark.parametrize(
    ("a", "b", "common", "words"),
    [
        (4, 6, 2, "both descend from 2"),
        (4, 6, 4, "6 descends from 4"),
        (6, 4, 4, "6 descends from 4"),
        (4, 4, 4, "the same version"),
        (4, 6, None, "no common ancestor is recorded"),
    ],
)
def test_the_relation_of_two_versions(a: int, b: int, common: int | None, words: str) -> None:
    assert relation(a, b, common) == words


def test_two_versions_answer_the_same_prompts_for_comparison(
    two_on_disk: RunningGateway, engine: FakeEngine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = {"a": 0, "b": 2, "prompts": ["2+2?", {"messages": [{"role": "user", "content": "and 1+3?"}]}]}
    answers = two_on_disk.http.post("/admin/versions/diff", json=body).json()["answers"]
    assert answers[0] == {"prompt": "2+2?", "a": "It is four.", "b": "4", "same": False}
    assert answers[1]["prompt"] == "and 1+3?"
    assert [one["weight_version"] for one in engine.tried] == ["0", "2"]
    assert engine.tried[0]["model_path"] == str(tmp_path) and engine.requests == [], "serving was not asked"
    (tmp_path / "prompts").write_text(
        '2+2?\n{"messages": [{"role": "user", "content": "x"}], "answer": "4"}\n42\n'
    )
    assert main(["--url", two_on_disk.url, "diff", "2", "0", "--prompts", str(tmp_path / "prompts")]) == 0
    out = capsys.readouterr().out
    assert "> 2+2?\n[2] 4\n[0] It is four." in out and "> 42" in out


def test_missing_versions_and_engines_with_one_set_of_weights_are_reported(
    two_on_disk: RunningGateway, engine: FakeEngine, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    gone = two_on_disk.http.post("/admin/versions/diff", json={"a": 1, "b": 2, "prompts": ["x"]})
    assert gone.status_code == 409 and "no longer on disk" in gone.json()["error"]["message"]
    engine.tries.clear()
    one_set = two_on_disk.http.post("/admin/versions/diff", json={"a": 0, "b": 2, "prompts": ["x"]})
    assert one_set.status_code == 409 and "one set of weights" in one_set.json()["error"]["message"]
    for wrong in ([], "x", [{"messages": []}], [4]):
        body = {"a": 0, "b": 2, "prompts": wrong}
        assert two_on_disk.http.post("/admin/versions/diff", json=body).status_code == 400
    assert main(["--url", two_on_disk.url, "diff", "0", "2", "--prompts", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err
