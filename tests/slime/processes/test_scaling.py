"""Tests changes of the number of judges at run time: real processes under a manager, and the HTTP call."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from claw_base import peer
from openclaw.errors import ClientError
from openclaw.http.admin import judge_scale
from openclaw.settings import Settings
from slime.processes import scaling
from slime.processes.servers import ServerManager, ServerSpec
from slime.processes.watch import ServerWatch

SLEEP = "import sys, time; print('judging as', sys.argv[1], flush=True); time.sleep(600)"


def judge(index: int) -> ServerSpec:
    name = f"judge-{index}"
    return ServerSpec(name, "judge", [sys.executable, "-c", SLEEP, name], group="judge")


GATEWAY = ServerSpec("gateway", "gateway", [sys.executable, "-c", SLEEP, "gateway"])


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ServerManager]:
    """Yields a watched gateway and one judge."""
    monkeypatch.setattr("slime.processes.watch.FOLLOW_INTERVAL", 0.05)
    manager = ServerManager(tmp_path)
    scaler = scaling.Scaler(manager, [GATEWAY, judge(0)])
    manager.adopt_or_launch_all(scaler.target())
    watch = ServerWatch(manager, scaler)
    watch.start()
    yield manager
    watch.close()
    time.sleep(0.2)
    manager.stop_all()


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    monkeypatch.setattr(peer, "can_identify_users", lambda: False)  # no connection known to the kernel
    app = FastAPI()
    app.include_router(judge_scale.router)
    settings = Settings(model_path="unused", run_dir=str(tmp_path))
    app.state.gateway = SimpleNamespace(settings=settings, recorder=None)

    async def refusal(_request: Any, error: Exception) -> Any:
        assert isinstance(error, ClientError)
        from starlette.responses import JSONResponse

        return JSONResponse({"message": str(error)}, error.status)

    app.add_exception_handler(ClientError, refusal)
    return TestClient(app, base_url="http://127.0.0.1", client=("127.0.0.1", 5))


def names(manager: ServerManager) -> list[str]:
    return [record.name for record in manager.processes()]


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.05)


def test_judges_are_added_and_removed_during_a_run_and_restarted_after_a_crash(
    watched: ServerManager, client: TestClient, tmp_path: Path
) -> None:
    first = watched.servers["judge-0"].record
    assert client.put("/admin/judges", json={"workers": 3}).json()["wanted"] == 3
    eventually(lambda: names(watched) == ["gateway", "judge-0", "judge-1", "judge-2"])
    eventually(lambda: "judging as judge-2" in (tmp_path / "logs" / "judge-2.log").read_text())
    assert client.get("/admin/judges").json() == {"workers": 3, "wanted": 3, "waiting": 0}
    eventually(lambda: "judge-2" in watched.servers)
    dead = watched.servers["judge-2"].record
    os.kill(dead.pid, signal.SIGKILL)
    eventually(lambda: watched.servers["judge-2"].record.pid != dead.pid)
    client.put("/admin/judges", json={"workers": 1})
    eventually(lambda: names(watched) == ["gateway", "judge-0"])
    assert watched.servers["judge-0"].record == first


def test_a_restarted_driver_keeps_the_number_and_a_new_run_uses_its_flag(tmp_path: Path) -> None:
    judge_scale.write_requested(tmp_path, 2)
    again = scaling.Scaler(ServerManager(tmp_path), [GATEWAY, judge(0)])
    assert [spec.name for spec in again.target()] == ["gateway", "judge-0", "judge-1"]
    assert again.target()[2].command[-1] == "judge-1"
    scaling.forget(tmp_path)
    assert [spec.name for spec in again.target()] == ["gateway", "judge-0"]


def test_an_unreadable_scaling_file_changes_nothing(tmp_path: Path) -> None:
    for text in ("{", "[]", '{"judge": "many"}', '{"judge": 0}'):
        scaling.scale_file(tmp_path).write_text(text)
        assert scaling.scaled([judge(0)], scaling.ordered_counts(tmp_path)) == [judge(0)]


@pytest.mark.parametrize("workers", [0, 65, "4", True, None, 1.5])
def test_an_invalid_number_is_rejected(client: TestClient, tmp_path: Path, workers: Any) -> None:
    answer = client.put("/admin/judges", json={"workers": workers})
    assert answer.status_code == 400 and "from 1 to 64" in answer.json()["message"]
    assert not scaling.scale_file(tmp_path).exists()


def test_without_a_run_folder_the_answer_describes_how_to_start_workers(client: TestClient) -> None:
    client.app.state.gateway.settings = Settings(model_path="unused")  # type: ignore[attr-defined]
    answer = client.put("/admin/judges", json={"workers": 2})
    assert answer.status_code == 409 and "python -m openclaw.judge.worker" in answer.json()["message"]
