"""Tests engines run by others: checked at the start, updated like own ones, never stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from safetensors.torch import load_file

from slime.arguments import Arguments, parse_args
from slime.errors import ClusterError, ConfigError
from slime.plan.gpu_split import split_of
from slime.ray.servers import external
from slime.ray.servers.external import ExternalEngines
from slime.ray.servers.specs import server_specs
from slime.weights.checksum import weights_checksum
from slime.weights.update import Candidate, WeightUpdate
from slime.weights.versions import WeightVersion, read_live
from tests import FAKES
from tests.fakes.engine_process import SLIME as slime_folder
from tests.fakes.sglang import FakeSGLang, Running
from tests.fakes.tiny_engine_model import plain_model, save_model

Start = Callable[..., Running]


def arguments(run_dir: Path, model: Path, backend: str, *urls: str) -> Namespace:
    return Namespace(
        run_dir=str(run_dir),
        hf_checkpoint=str(model),
        rollout_backend=backend,
        rollout_external_engine_addrs=list(urls),
        weight_update_timeout=20.0,
        weight_probe_limit=None,
        engine_start_timeout=1.0,
        debug_train_only=False,
    )


def version(number: int, folder: Path) -> WeightVersion:
    return WeightVersion(number, str(folder), weights_checksum(load_file(folder / "model.safetensors")))


def publish(engines: ExternalEngines, run_dir: Path, weights: WeightVersion) -> None:
    WeightUpdate(engines.present(), run_dir, lambda _: None, patience=20).publish(Candidate(weights, 0, None))


@pytest.fixture
def start(model_path: Path) -> Iterator[Start]:
    torch.set_num_threads(1)
    running: list[Running] = []

    def start_one(model: Path = model_path) -> Running:
        running.append(Running(FakeSGLang(model, plain_model)))
        return running[-1]

    yield start_one
    for one in running:
        one.close()


def test_external_sglang_engines_are_updated_verified_and_restored_after_a_restart(
    start: Start, model_path: Path, other_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "LOOK_INTERVAL", 0.0)
    both = [start(), start()]
    engines = ExternalEngines(arguments(tmp_path, model_path, "sglang", *(one.url for one in both)))
    engines.wait_ready()
    publish(engines, tmp_path, version(4, other_weights))
    assert [one.fake.version for one in both] == ["4", "4"]
    both[1].fake.__init__(model_path, plain_model)  # as after a restart by its operator
    engines.check_engines()
    assert both[1].fake.version == "4" and both[1].fake.path == str(other_weights)
    assert both[0].fake.calls.count("update 4") == 1


def test_an_external_engine_that_did_not_load_is_detected(
    start: Start, model_path: Path, other_weights: Path, tmp_path: Path
) -> None:
    one = start()
    one.fake.fault = "stale_head"
    engines = ExternalEngines(arguments(tmp_path, model_path, "sglang", one.url))
    with pytest.raises(external.EngineError, match=r"were not replaced|a tensor is stale"):
        publish(engines, tmp_path, version(4, other_weights))


@pytest.fixture
def embedded(model_path: Path, tmp_path: Path) -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """f(): starts an engine as another operator does, repeatedly on the same port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "embedded"]
    command += ["--model-path", str(model_path), "--port", str(port)]
    started: list[subprocess.Popen[bytes]] = []

    def start_it() -> subprocess.Popen[bytes]:
        env = {**os.environ, "PYTHONPATH": slime_folder}
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL))
        started[-1].url = f"http://127.0.0.1:{port}"  # type: ignore[attr-defined]
        return started[-1]

    yield start_it
    for process in started:
        process.kill()
        process.wait()


def test_an_external_embedded_engine_serves_and_is_skipped_while_unreachable(
    embedded: Any, model_path: Path, other_weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external, "LOOK_INTERVAL", 0.0)
    process = embedded()
    args = arguments(tmp_path, model_path, "embedded", process.url)
    args.engine_start_timeout = 60.0
    engines = ExternalEngines(args)
    engines.wait_ready()
    publish(engines, tmp_path, version(1, other_weights))
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    engines.check_engines()
    assert engines.unreachable == {process.url}
    again = embedded()
    deadline = time.monotonic() + 60
    while engines.missing():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    engines.check_engines()
    info = httpx.get(f"{process.url}/model_info", trust_env=False).json()
    assert (info["weight_version"], info["checksum"]) == ("1", version(1, other_weights).checksum)
    assert read_live(tmp_path) is not None and again.poll() is None


def test_unreachable_engines_and_other_models_are_rejected_at_the_start(
    start: Start, model_path: Path, tmp_path: Path
) -> None:
    one = start()
    with pytest.raises(
        ClusterError, match=r"127.0.0.1:9 \(--rollout-external-engine-addrs\) did not respond"
    ):
        ExternalEngines(arguments(tmp_path, model_path, "sglang", one.url, "http://127.0.0.1:9")).wait_ready()
    with pytest.raises(ConfigError, match="is sglang, but this run has --rollout-backend embedded"):
        ExternalEngines(arguments(tmp_path, model_path, "embedded", one.url)).wait_ready()
    untied = save_model(tmp_path / "untied", seed=3, tie=False)
    with pytest.raises(ConfigError, match=r"which lacks 1 tensors: lm_head.weight; it must serve"):
        ExternalEngines(arguments(tmp_path, untied, "sglang", one.url)).wait_ready()


def test_an_engine_that_does_not_report_its_weights_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    plain_vllm = httpx.Response(404, json={"detail": "Not Found"})
    monkeypatch.setattr(external.httpx, "get", lambda *args, **options: plain_vllm)
    with pytest.raises(ConfigError, match=r"does not report its weights; if it is vLLM, start it with"):
        external.check_kind("http://h:1", "vllm")


def test_with_external_engines_no_engines_are_started(model_path: Path, tmp_path: Path) -> None:
    words = ["--hf-checkpoint", str(model_path), "--run-dir", str(tmp_path), "--num-rollout", "1"]
    rollout = FAKES / "tiny_rollout.py"
    words += ["--rollout-function-path", f"{rollout}:generate_rollout", "--fake-port", "1"]
    words += ["--disable-rollout-global-dataset", "--disable-rewards-normalization"]
    args = parse_args([*words, "--rollout-external-engine-addrs", "10.0.0.2:15000", "http://10.0.0.3:15000/"])
    assert args.rollout_external_engine_addrs == ["http://10.0.0.2:15000", "http://10.0.0.3:15000"]
    assert server_specs(args) == [] and split_of(args).total == 1 and args.engine_count == 2


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"rollout_external": True}, "list the engines with --rollout-external-engine-addrs HOST:PORT"),
        ({"rollout_external_engine_addrs": ["10.0.0.2"]}, "10.0.0.2 must be HOST:PORT"),
        ({"rollout_external_engine_addrs": ["h:1", "http://h:1"]}, "contains duplicates"),
        ({"rollout_external_engine_addrs": ["h:1"], "rollout_num_gpus": 2}, "ROLLOUT_GPUS=0"),
        ({"rollout_external_engine_addrs": ["h:1"], "engine_port": 15000}, "--engine-port 15000"),
        ({"rollout_external_engine_addrs": ["h:1"], "colocate": True}, "--colocate shares GPUs"),
    ],
)
def test_flags_of_external_engines_that_contradict_are_refused(flags: dict[str, Any], said: str) -> None:
    from claw_base.settings.rules import check_flags
    from slime.arguments.rules.engine import check_engine

    args = Arguments(**flags)
    with pytest.raises(ConfigError, match=said):
        check_flags(args)
        check_engine(args)


@pytest.mark.parametrize("backend", ["sglang", "embedded"])
@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--use-slime-router"], "the gateway .* is the router"),
        (["--sglang-router-ip", "10.0.0.2", "--sglang-router-port", "3000"], "the gateway .* is the router"),
        (["--router-policy", "consistent_hashing"], "keeps a conversation on one"),
        (["--prefill-num-servers", "2"], "--rollout-num-gpus-per-engine"),
    ],
)
def test_routers_and_disaggregated_prefill_are_rejected_with_an_alternative(
    backend: str, flags: list[str], said: str, model_path: Path
) -> None:
    words = ["--hf-checkpoint", str(model_path), "--rollout-backend", backend, *flags]
    with pytest.raises(ConfigError, match=said):
        parse_args(words)


@pytest.mark.parametrize(
    ("module", "flags", "said"),
    [
        (
            "slime.engines.launch",
            ["--backend", "vllm", "--model-path", "m", "--vllm-speculative-config", "{}"],
            "would not receive the trained weights",
        ),
        (
            "openclaw.server",
            ["--backend", "sglang", "--model-path", "m"],
            "--engine-url http://127.0.0.1:30010",
        ),
    ],
)
def test_an_engine_that_was_not_started_is_rejected_with_a_remedy(
    module: str, flags: list[str], said: str
) -> None:
    command = [sys.executable, "-m", module, *flags]
    refused = subprocess.run(command, capture_output=True, text=True)
    assert refused.returncode == 2 and said in refused.stderr
