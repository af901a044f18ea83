"""Weight versions over HTTP and at the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from openclaw.store import RolloutStore
from openclaw.versions.__main__ import main
from slime.weights.orders import VersionOrder, VersionOrders


@contextmanager
def driver(run_dir: Path, error: str | None = None) -> Iterator[list[VersionOrder]]:
    """Answers orders as the driver of a run does."""
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
def gateway(start_gateway: Any, tmp_path: Path) -> Any:
    """Version 1 is live after 0; version 2 was rejected."""
    gateway = start_gateway(run_dir=str(tmp_path))
    store = RolloutStore(tmp_path / "buffer")
    store.weights_live(-1, 0, None, True, str(tmp_path), "sum-0")
    store.weights_live(0, 1, 0, False, "/gone", "sum-1", details={"metrics": {"train/loss": 1.5}})
    why = {"reason": "KL is 9", "stage": "likelihood", "measurements": {"kl": 9.0}}
    store.weights_rejected(1, 2, 1, None, why)
    store.close()
    return gateway


def test_versions_are_listed_with_status_lineage_and_reason(gateway: Any) -> None:
    found = gateway.http.get("/admin/versions").json()
    assert (found["live"], found["pinned"]) == (1, None)
    brief = [(one["version"], one["parent"], one["status"], one["on_disk"]) for one in found["data"]]
    assert brief == [(0, None, "superseded", True), (1, 0, "live", False), (2, 1, "rejected", False)]
    assert found["data"][2]["reason"] == "KL is 9" and found["data"][2]["measurements"] == {"kl": 9.0}
    one = gateway.http.get("/admin/versions/1").json()
    assert one["object"] == "version" and one["metrics"] == {"train/loss": 1.5}
    assert gateway.http.get("/admin/versions/9").status_code == 404
    assert gateway.http.get("/admin/versions/x").status_code == 404


def test_going_back_is_done_by_the_driver(gateway: Any, tmp_path: Path) -> None:
    with driver(tmp_path) as done:
        answer = gateway.http.post("/admin/versions/0/rollback", json={"drop_turns": True})
        pinned = gateway.http.post("/admin/versions/1/pin").json()
        assert gateway.http.get("/admin/versions").json()["pinned"] == 1
        assert gateway.http.post("/admin/versions/unpin").json()["status"] == "done"
    assert answer.json() == {"action": "rollback", "version": 0, "status": "done", "seconds": 0.1}
    assert pinned["status"] == "done"
    assert [(order.action, order.version, order.drop_turns) for order in done] == [
        ("rollback", 0, True),
        ("pin", 1, False),
        ("unpin", None, False),
    ]


def test_an_order_that_the_driver_refuses_says_why(gateway: Any, tmp_path: Path) -> None:
    with driver(tmp_path, error="version 7 is not on disk any more"):
        answer = gateway.http.post("/admin/versions/7/rollback")
    assert answer.status_code == 409 and "not on disk" in answer.json()["error"]["message"]


def test_a_second_order_is_refused_while_one_waits(gateway: Any, tmp_path: Path) -> None:
    (tmp_path / "version_order.json").write_text(json.dumps({"action": "pin", "version": 1}))
    answer = gateway.http.post("/admin/versions/0/rollback")
    assert answer.status_code == 409 and "pin 1" in answer.json()["error"]["message"]


def test_the_command_lists_and_says_what_is_wrong(gateway: Any, capsys: Any) -> None:
    assert main(["--url", gateway.url, "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "live 1" and "rejected" in lines[3] and lines[3].endswith("KL is 9")
    assert main(["--url", gateway.url, "release", "2"]) == 0
    assert json.loads(capsys.readouterr().out) == {"version": 2, "released": 0}
    assert main(["--url", gateway.url, "show", "9"]) == 2
    assert "there is no version 9" in capsys.readouterr().err
    assert main(["--url", "http://127.0.0.1:9", "list"]) == 2
