"""The gateway as a process: its start, rejected settings, and reported state."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from claw_base.ports import listen
from claw_base.run_folder.records import live_processes
from openclaw.engine.process import EngineProcess
from openclaw.errors import ConfigError
from openclaw.server import main
from tests import ROOT
from tests.fakes.running_gateway import RunningGateway, StartGateway

FAKE_LAUNCHER = """
import json, sys, http.server, os
args = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if args.get("--backend") == "broken":
    sys.exit("engine: no weights in this folder")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        data = json.dumps({"weight_version": "0", "pid": os.getpid()}).encode()
        self.send_response(200); self.send_header("content-length", str(len(data))); self.end_headers()
        self.wfile.write(data)
    def log_message(self, *args): pass
server = http.server.ThreadingHTTPServer((args["--host"], int(args["--port"])), Handler)
print(json.dumps({"url": "x", "model": args["--model-path"], "version": 0, "pid": os.getpid()}), flush=True)
server.serve_forever()
"""


def environment(**variables: str) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]), **variables}


Refused = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Refused:
    """Starts the server with flags and variables; returns the error line of a rejected start."""

    def start(*flags: str, **variables: str) -> str:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        assert main(flags) == 2
        out, err = capsys.readouterr()
        assert err.count("\n") == 1 and out == ""
        return err

    return start


@pytest.fixture
def launcher(tmp_path: Path) -> Path:
    """Returns a framework folder whose launcher starts a program that answers like an engine."""
    package = tmp_path / "framework" / "slime" / "engines"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "launch.py").write_text(FAKE_LAUNCHER)
    return tmp_path / "framework"


@pytest.fixture
def served(model: Path, launcher: Path, tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    flags = ["--model-path", str(model), "--port", "0", "--backend", "embedded", "--enable-rl-intercept"]
    flags += ["--rl-buffer-dir", str(tmp_path / "buffer")]
    env = environment()
    env["PYTHONPATH"] = os.pathsep.join([str(launcher), env["PYTHONPATH"]])
    process = subprocess.Popen(
        [sys.executable, "-m", "openclaw.server", *flags], env=env, stdout=subprocess.PIPE, text=True
    )
    yield process
    if process.poll() is None:
        process.terminate()
        process.wait(30)


def ready_url(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(
        r"ready: (http://127\.0\.0\.1:\d+)/v1 serves small-qwen3, recording to .*buffer\n", line
    )
    assert found, line
    return found[1]


def engine_of(url: str) -> psutil.Process:
    listed = httpx.get(f"{url}/admin/processes").json()
    return psutil.Process(next(entry["pid"] for entry in listed if entry["role"] == "engine"))


def test_a_stand_alone_server_starts_and_stops_its_engine(served: subprocess.Popen[str]) -> None:
    url = ready_url(served)
    assert httpx.get(f"{url}/readyz").status_code == 200
    first = engine_of(url)
    first.kill()
    deadline = time.monotonic() + 30
    while httpx.get(f"{url}/readyz").status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    second = engine_of(url)
    assert second.pid != first.pid
    served.send_signal(signal.SIGTERM)
    assert served.wait(30) == 0
    assert not second.is_running() or second.status() == psutil.STATUS_ZOMBIE


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="parent-death signals are Linux's")
def test_a_killed_server_leaves_no_engine_running(served: subprocess.Popen[str]) -> None:
    engine = engine_of(ready_url(served))
    served.kill()
    served.wait(30)
    engine.wait(30)


def test_engine_that_cannot_start_ends_the_server_with_its_reason(model: Path, tmp_path: Path) -> None:
    script = tmp_path / "launch.py"
    script.write_text(FAKE_LAUNCHER)
    process = EngineProcess([sys.executable, str(script), "--backend", "broken"], 1)
    with pytest.raises(ConfigError, match="no weights in this folder"):
        asyncio.run(process.run())


def test_an_occupied_port_is_rejected_before_the_start(model: Path, refused: Refused) -> None:
    with listen("127.0.0.1", 0) as taken:
        port = str(taken.getsockname()[1])
        message = refused("--model-path", str(model), "--port", port)
    assert f"port {port}" in message and "--port" in message


def test_invalid_configurations_are_rejected_in_one_line(
    model: Path, tmp_path: Path, refused: Refused
) -> None:
    path = ["--model-path", str(model), "--port", "0"]
    assert "--model-path" in refused()
    assert "config.json" in refused("--model-path", str(tmp_path), "--port", "0", "--engine-url", "http://x")
    assert "did you mean --port?" in refused(*path, "--prot", "5")
    assert "contradict" in refused(*path, "--engine-url", "http://x", "--backend", "embedded")
    assert "--rl-buffer-dir" in refused(*path, "--enable-rl-intercept")
    assert "SGLANG_API_KEY" in refused(*path, "--host", "0.0.0.0")
    assert "PORT" in refused("--model-path", str(model), PORT="many")


def test_runtime_imports_no_trainer() -> None:
    code = (
        "import sys, openclaw.server\n"
        "assert 'openclaw.judge.rules.wordings' not in sys.modules, 'a gateway does not judge'\n"
        "import openclaw.judge.worker, openclaw.store, openclaw.trainer_hooks.lease\n"
        "print([name for name in ('torch', 'transformers', 'ray', 'slime', 'openai') if name in sys.modules])\n"
        "from renderers.client import generate  # still the real one, for code that asks for it"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_status_counts_turns_and_names_the_version(gateway: RunningGateway) -> None:
    gateway.says("hello")
    for options in ({}, {"temperature": 0}):
        gateway.http.post(
            "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], **options}
        )
    status = gateway.http.get("/status").json()
    assert status["turns"] == {"captured": 2} and status["dropped"] == {}
    assert status["weight_version"] == 0 and status["samples"] == {}
    assert status["engines"] == [
        {"url": gateway.engine.url, "ready": True, "weight_version": 3, "checksum": "c0ffee"}
    ]


def test_metrics_have_prometheus_text_format(gateway: RunningGateway) -> None:
    gateway.says("hello")
    gateway.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
    text = gateway.http.get("/metrics").text
    assert 'openclaw_answers_total{outcome="complete"} 1.0' in text
    assert 'openclaw_tokens_total{kind="completion"}' in text
    assert 'openclaw_turns{state="captured"} 1.0' in text
    assert "openclaw_weight_version 0.0" in text and "openclaw_judge_failing_turns 0.0" in text


def test_plain_server_records_nothing(start_gateway: StartGateway, tmp_path: Path) -> None:
    gateway = start_gateway(enable_rl_intercept=False, rl_buffer_dir=None)
    gateway.says("hello")
    answer = gateway.http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}]})
    assert answer.json()["choices"][0]["message"]["content"] == "hello"
    assert not (tmp_path / "buffer").exists()
    assert gateway.engine.requests[0]["return_logprob"] is False
    assert gateway.http.get("/status").json()["weight_version"] == 3


def test_only_live_processes_of_the_run_are_listed(start_gateway: StartGateway, tmp_path: Path) -> None:
    folder = tmp_path / "run" / "processes"
    folder.mkdir(parents=True)
    me = psutil.Process()
    record = {"name": "judge-0", "role": "judge", "pid": me.ppid(), "url": None}
    record |= {"command": [], "started_at": 0.0}
    alive = record | {"create_time": psutil.Process(me.ppid()).create_time()}
    (folder / "judge-0.json").write_text(json.dumps(alive))
    (folder / "trainer.json").write_text(json.dumps(record | {"role": "trainer", "create_time": 5.0}))
    (folder / "broken.json").write_text("{")
    assert [entry["role"] for entry in live_processes(tmp_path / "run")] == ["judge"]
    gateway = start_gateway(run_dir=str(tmp_path / "run"))
    listed = {entry["role"]: entry["pid"] for entry in gateway.http.get("/admin/processes").json()}
    assert listed == {"judge": me.ppid(), "gateway": os.getpid()}


def test_administration_needs_its_own_key_if_one_is_set(start_gateway: StartGateway) -> None:
    gateway = start_gateway(admin_key="admin")
    assert gateway.http.get("/admin/processes").status_code == 401
    right = {"Authorization": "Bearer admin"}
    assert gateway.http.delete("/admin/sessions/s", headers=right).json()["expired_turns"] == 0


async def test_long_engine_output_without_line_ends_is_drained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "talker.py"
    script.write_text(
        "import sys\n"
        'print(\'{"url": "x"}\', flush=True)\n'
        "for stream in (sys.stderr, sys.stdout):\n"
        "    for step in range(4000):\n"
        "        stream.write(f'\\rloading shards {step} ' + '#' * 60); stream.flush()\n"
        "sys.exit('the last words')\n"
    )
    process = EngineProcess([sys.executable, str(script)], 1)
    async with asyncio.timeout(20):
        assert await process._run_once()
    assert process._last_line == "the last words"
    assert "loading shards 3999" in capfd.readouterr().err
