"""Tests that SGLang gets only flags that it accepts, is announced in one line, and is never left running."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import httpx
import psutil
import pytest

from slime.arguments import Arguments, parse_args
from slime.engines import toolchain
from slime.engines.launch import main
from slime.engines.programs import child_command, child_environment, search_path
from slime.engines.sglang.capabilities import ROUTES
from slime.engines.sglang.child import taken_flags
from slime.errors import ConfigError
from slime.plan.gpu_split import split_of
from slime.plan.model_servers import model_servers
from slime.processes.servers import ServerSpec, healthy
from slime.ray.servers.specs import own_words, server_specs
from tests import FAKES, ROOT

FAKE = FAKES / "sglang_python.py"
SLIME = str(ROOT / "slime")


@pytest.fixture
def engine_python(tmp_path: Path) -> str:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    script.chmod(0o755)
    return str(script)


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def launch(model_path: Path, engine_python: str, port: int) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    running: list[subprocess.Popen[str]] = []

    def start(*flags: str, **env: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "slime.engines.launch", "--backend", "sglang", "--port", str(port)]
        command += ["--model-path", str(model_path), "--engine-python", engine_python, *flags]
        environ = {**os.environ, "PYTHONPATH": SLIME, **env}
        pipe = subprocess.PIPE
        running.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environ))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def gone(pid: int) -> bool:
    for _ in range(100):
        if not psutil.pid_exists(pid):
            return True
        time.sleep(0.05)
    return False


def test_it_serves_the_live_weights_and_prints_one_line(launch, other_weights, tmp_path, port):
    live = tmp_path / "live_weights.json"
    live.write_text(json.dumps({"version": 12, "path": str(other_weights), "checksum": "0"}))
    process = launch("--weights-file", str(live), "--sglang-tp-size", "2", "--device", "cpu")
    ready = json.loads(process.stdout.readline())
    assert (ready["url"], ready["version"], ready["pid"]) == (f"http://127.0.0.1:{port}", 12, process.pid)
    assert ready["engine_version"] == "0.5.23"
    seen = httpx.get(ready["url"] + "/server_info", trust_env=False).json()["seen"]
    assert (seen["model_path"], seen["weight_version"]) == (str(other_weights), "12")
    assert (seen["tp_size"], seen["device"]) == ("2", "cpu")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_engine_process_is_left_running(launch, number):
    process = launch()
    ready = json.loads(process.stdout.readline())
    child = httpx.get(ready["url"] + "/server_info", trust_env=False).json()["pid"]
    process.send_signal(number)
    process.wait(timeout=20)
    assert gone(child)


def test_an_engine_whose_launcher_was_killed_frees_its_port_at_once(launch):
    process = launch(FAKE_SGLANG_DRAINS="1")
    ready = json.loads(process.stdout.readline())
    child = httpx.get(ready["url"] + "/server_info", trust_env=False).json()["pid"]
    process.kill()
    process.wait(timeout=20)
    assert gone(child)


def test_programs_in_the_engine_pythons_folder_take_precedence(launch, engine_python):
    ready = json.loads(launch().stdout.readline())
    path = httpx.get(ready["url"] + "/server_info", trust_env=False).json()["path"]
    assert path == os.path.dirname(engine_python) + os.pathsep + os.environ["PATH"]


def test_an_engine_bypasses_a_proxy_for_its_own_machine(monkeypatch):
    environ = {"PATH": "/usr/bin", "no_proxy": "corp.example, 127.0.0.1", "MASTER_ADDR": "10.1.2.3"}
    found = child_environment(sys.executable, environ | {"http_proxy": "http://proxy:3128"})
    assert found["no_proxy"] == found["NO_PROXY"] == "corp.example,127.0.0.1,localhost,::1,10.1.2.3"
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("no_proxy", found["no_proxy"])
    for host in ("127.0.0.1:8000", "localhost", "10.1.2.3:6379", "api.corp.example"):
        assert urllib.request.proxy_bypass_environment(host)
    assert not urllib.request.proxy_bypass_environment("example.org")


def test_programs_are_searched_next_to_the_given_python_not_its_link_target(tmp_path):
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.symlink_to(sys.executable)
    assert search_path(str(python), {"PATH": "/usr/bin"}) == f"{python.parent}{os.pathsep}/usr/bin"
    assert search_path("python3", {"PATH": "/usr/bin"}) == "/usr/bin"


def test_files_beside_the_child_hide_no_package_of_the_engine(tmp_path):
    (tmp_path / "nccl.py").write_text("")
    program = tmp_path / "child.py"
    program.write_text("import importlib.util\nprint(importlib.util.find_spec('nccl'))\n")
    done = subprocess.run(child_command(sys.executable, str(program)), capture_output=True, text=True)
    assert done.stdout == "None\n"


def test_the_launcher_exits_with_its_engine(launch):
    process = launch()
    ready = json.loads(process.stdout.readline())
    os.kill(httpx.get(ready["url"] + "/server_info", trust_env=False).json()["pid"], signal.SIGKILL)
    assert process.wait(timeout=20) != 0


def test_a_rejection_by_sglang_is_reported_with_its_last_line(launch):
    process = launch("--sglang-no-such-flag", "1")
    assert process.wait(timeout=20) == 2
    assert "SGLang 0.5.23 has no flag --no-such-flag" in process.stderr.read()


@pytest.mark.parametrize("routes", [ROUTES, ROUTES[:-3]])
def test_another_sglang_version_is_reported_and_its_features_are_checked(launch, routes):
    process = launch(FAKE_SGLANG_VERSION="0.5.9", FAKE_SGLANG_ROUTES=" ".join(routes))
    if routes == ROUTES:
        assert json.loads(process.stdout.readline())["engine_version"] == "0.5.9"
        return
    assert process.wait(timeout=20) == 2
    said = process.stderr.read()
    assert "warning: SGLang 0.5.9 is not the tested version" in said and "has no /weights_checker" in said


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--sglang-weight-version", "3"], "the trainer numbers weight versions"),
        (["--sglang-disaggregation-mode", "prefill"], "need a router"),
        (["--tp-size", "2"], "have the prefix --sglang-: --sglang-tp-size"),
    ],
)
def test_flags_that_are_not_for_the_user_are_refused(capsys, model_path, flags, message):
    with pytest.raises(SystemExit) as ended:
        main(["--backend", "sglang", "--model-path", str(model_path), "--port", "1", *flags])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_python_without_sglang_is_reported(model_path):
    command = [
        sys.executable,
        "-m",
        "slime.engines.launch",
        "--backend",
        "sglang",
        "--model-path",
        str(model_path),
    ]
    done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, cwd=SLIME, check=False)
    assert done.returncode == 2 and "has no SGLang" in done.stderr


def words_of(model_path: Path, *flags: str) -> Arguments:
    prompts = model_path.parent / "prompts.jsonl"
    prompts.write_text('{"prompt": "2 + 3 =", "label": "5"}\n')
    base = ["--hf-checkpoint", str(model_path), "--num-rollout", "1", "--prompt-data", str(prompts)]
    base += [
        "--input-key",
        "prompt",
        "--label-key",
        "label",
        "--rm-type",
        "math",
        "--n-samples-per-prompt",
        "2",
    ]
    return parse_args([*base, *flags], env={})


GPUS = ["--backend", "sglang", "--rollout-num-gpus", "4", "--rollout-num-gpus-per-engine", "2"]
JUDGES = ["--prm-num-gpus", "2", "--prm-teacher-num-gpus", "2"]


def test_policy_judge_and_teacher_have_separate_servers_and_settings(model_path, other_weights):
    args = words_of(
        model_path, *GPUS, *JUDGES, "--actor-num-gpus-per-node", "2", "--prm-teacher-hf-checkpoint",
        str(other_weights), "--sglang-mem-fraction-static", "0.8", "--prm-sglang-mem-fraction-static", "0.5",
    )  # fmt: skip
    policy, judge, teacher = model_servers(args)
    assert [(s.count, s.gpus) for s in (policy, judge, teacher)] == [(2, 2), (2, 1), (1, 2)]
    assert (judge.model, teacher.model) == (str(model_path), str(other_weights))
    streams = ["--sglang-stream-interval", "4", "--sglang-incremental-streaming-output"]
    shared = [*streams, "--sglang-mem-fraction-static", "0.8"]
    assert own_words(args, policy) == [*shared, "--sglang-tp-size", "2"]
    assert own_words(args, judge) == [*shared, "--sglang-mem-fraction-static", "0.5"]
    assert own_words(args, teacher) == [*shared, "--sglang-tp-size", "2"]
    assert [(part.name, part.count) for part in split_of(args).parts] == [
        ("actor", 2), ("rollout", 4), ("prm", 2), ("teacher", 2),
    ]  # fmt: skip


def test_sglang_streams_four_tokens_at_a_time_on_a_gpu_and_one_on_a_cpu_unless_configured(model_path):
    train = ["--actor-num-gpus-per-node", "2"]
    own = words_of(model_path, *GPUS, *train, "--sglang-stream-interval", "1")
    [policy] = model_servers(own)
    words = own_words(own, policy)
    assert [words[at + 1] for at, word in enumerate(words) if word == "--sglang-stream-interval"] == [
        "4",
        "1",
    ], "the last one counts"
    on_cpu = words_of(model_path, "--backend", "sglang")
    assert own_words(on_cpu, model_servers(on_cpu)[0]) == []


def test_an_sglang_without_incremental_streaming_is_started_without_it(monkeypatch):
    """`child.py` asks the parser of the installed SGLang."""

    class ServerArgs:
        flags: tuple[str, ...] = ()

        @classmethod
        def add_cli_args(cls, parser):
            for flag in cls.flags:
                parser.add_argument(flag, action="store_true")

    package = ModuleType("sglang.srt.server_args")
    package.ServerArgs = ServerArgs  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sglang.srt.server_args", package)
    monkeypatch.setitem(sys.modules, "sglang", ModuleType("sglang"))
    monkeypatch.setitem(sys.modules, "sglang.srt", ModuleType("sglang.srt"))
    ServerArgs.flags = ("--a",)
    assert taken_flags("0.5.0", ["--a", "--incremental-streaming-output"]) == ["--a"]
    with pytest.raises(SystemExit):
        taken_flags("0.5.0", ["--b"])
    ServerArgs.flags = ("--a", "--incremental-streaming-output")
    assert taken_flags("0.5.23", ["--a", "--incremental-streaming-output"])[1:] == [
        "--incremental-streaming-output"
    ]


def test_the_specs_of_a_run_are_checked_by_the_installed_sglang(
    model_path, engine_python, tmp_path, monkeypatch
):
    monkeypatch.setattr(toolchain, "problems", lambda python, environ: [])
    flags = [*GPUS, *JUDGES, "--engine-python", engine_python, "--run-dir", str(tmp_path / "run")]
    specs = server_specs(words_of(model_path, *flags, "--sglang-mem-fraction-static", "0.8"))
    assert [(spec.name, spec.role) for spec in specs] == [
        ("engine-0", "engine"),
        ("engine-1", "engine"),
        ("judge-engine-0", "judge_engine"),
        ("judge-engine-1", "judge_engine"),
        ("teacher-engine-0", "teacher_engine"),
    ]
    assert ["--weights-file" in spec.command for spec in specs] == [True, True, False, False, False]
    assert len({spec.url for spec in specs}) == 5
    contexts = [*flags, "--context-length", "32768", "--prm-context-length", "16384"]
    given = [spec.command for spec in server_specs(words_of(model_path, *contexts))]
    assert [command[command.index("--context-length") + 1] for command in given] == [
        "32768", "32768", "16384", "16384", "32768",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="has no flag --mem-fraction"):
        server_specs(words_of(model_path, *flags, "--sglang-mem-fraction", "0.8"))


@pytest.mark.parametrize(("flags", "refused"), [(GPUS, True), (["--backend", "sglang"], False)])
def test_a_start_on_gpus_reports_what_sglang_lacks_to_build_kernels_before_anything_loads(
    model_path, engine_python, tmp_path, monkeypatch, flags, refused
):
    asked = []

    def problems(python, environ):
        asked.append(python)
        return ["no ninja: install it", "no nvcc: install that"]

    monkeypatch.setattr(toolchain, "problems", problems)
    run_dir = ["--engine-python", engine_python, "--run-dir", str(tmp_path / "run")]
    args = words_of(model_path, *flags, *run_dir)
    if not refused:
        assert server_specs(args) and asked == []
        return
    with pytest.raises(ConfigError, match="no ninja: install it; no nvcc"):
        server_specs(args)
    assert asked == [engine_python]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--backend", "vllm", "--colocate"], "vLLM does not report whether it has released its memory"),
        (
            ["--backend", "sglang", "--rollout-num-gpus", "3", "--rollout-num-gpus-per-engine", "2"],
            "is not divisible by",
        ),
        (["--rollout-num-gpus", "2", "--rollout-num-gpus-per-engine", "2"], "use sglang"),
        (["--sglang-mem-fraction-static", "0.8"], "serves only with --rollout-backend sglang"),
    ],
)
def test_impossible_engine_settings_are_rejected(model_path, flags, message):
    with pytest.raises(ConfigError, match=message):
        words_of(model_path, *flags)


def test_a_paused_engine_still_answers_its_watcher(launch):
    process = launch("--device", "cpu", FAKE_SGLANG_HEALTH_SECONDS="2")
    url = json.loads(process.stdout.readline())["url"]
    httpx.post(url + "/pause_generation", json={}, trust_env=False).raise_for_status()
    engine = ServerSpec("engine-0", "engine", [], url, health_timeout=1.0)
    assert healthy(engine)


def test_an_engine_that_generates_for_its_health_looks_dead_while_paused(launch):
    variables = {"FAKE_SGLANG_HEALTH_SECONDS": "2", "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "1"}
    process = launch("--device", "cpu", **variables)
    url = json.loads(process.stdout.readline())["url"]
    httpx.post(url + "/pause_generation", json={}, trust_env=False).raise_for_status()
    assert not healthy(ServerSpec("engine-0", "engine", [], url, health_timeout=1.0))
