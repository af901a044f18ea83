"""Tests that vLLM is started in its own Python, with flags that it accepts, and can import only `slime` of this
repository."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from slime.arguments import Arguments, parse_args
from slime.engines.launch import main
from slime.engines.vllm.child import complete
from slime.errors import ConfigError
from slime.plan.model_servers import model_servers
from slime.ray.servers.specs import own_words, server_specs
from tests import FAKES, ROOT

FAKE = FAKES / "vllm_python.py"
SLIME = ROOT / "slime"


@pytest.fixture
def engine_python(tmp_path: Path) -> str:
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    script.chmod(0o755)
    return str(script)


def test_vllm_gets_the_live_weights_its_flags_and_only_this_package(
    model_path: Path, other_weights: Path, engine_python: str, tmp_path: Path
) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    live = tmp_path / "live_weights.json"
    live.write_text(json.dumps({"version": 12, "path": str(other_weights), "checksum": "abc"}))
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", "vllm", "--port", str(port)]
    command += [
        "--model-path",
        str(model_path),
        "--engine-python",
        engine_python,
        "--weights-file",
        str(live),
    ]
    command += ["--device", "cpu", "--threads", "3", "--context-length", "2048", "--vllm-max-num-seqs", "8"]
    command += ["--probe-limit", "0.25"]
    env = {**os.environ, "PYTHONPATH": str(SLIME)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        seen = httpx.get(ready["url"] + "/server_info", trust_env=False).json()["seen"]
    finally:
        process.terminate()
        process.wait(timeout=20)
        process.stdout.close()  # type: ignore[union-attr]
    assert (ready["version"], ready["backend"], ready["engine_version"]) == (12, "vllm", "0.32.0")
    wanted = {"host": "127.0.0.1", "port": port, "model_path": str(model_path), "version": 12}
    assert seen["order"] == wanted | {"checksum": "abc", "device": "cpu", "probe_limit": 0.25}
    flags = {name: value for name, value in seen["flags"].items() if value is not None}
    assert flags == {
        "model": str(other_weights), "tokenizer": str(model_path), "max_model_len": "2048", "max_num_seqs": "8",
    }  # fmt: skip
    assert (seen["visible"], seen["threads"]) == (["claw_base", "slime"], "3")
    assert seen["path"].split(os.pathsep)[0] == os.path.dirname(engine_python)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--vllm-logprobs-mode", "raw_logprobs"], "at the sampling temperature, before truncation"),
        (["--vllm-quantization=fp8"], "cannot be verified"),
        (["--vllm_enable_lora"], "merged into the weights before"),
        (["--tensor-parallel-size", "2"], "have the prefix --vllm-: --vllm-tensor-parallel-size"),
        (["--sglang-tp-size", "2"], "unknown flag --sglang-tp-size"),
    ],
)
def test_flags_that_are_not_for_the_user_are_refused(
    capsys: pytest.CaptureFixture[str], model_path: Path, flags: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--backend", "vllm", "--model-path", str(model_path), "--port", "1", *flags])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_python_without_vllm_is_reported(model_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "slime.engines.launch",
        "--backend",
        "vllm",
        "--model-path",
        str(model_path),
    ]
    done = subprocess.run([*command, "--port", "0"], capture_output=True, text=True, cwd=SLIME, check=False)
    assert done.returncode == 2 and "has no vLLM" in done.stderr


def test_code_in_vllms_python_needs_none_of_our_other_packages() -> None:
    absent = ("orjson", "httpx", "ray", "openclaw", "transformers", "tokenizers")
    program = f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
    program += "import slime.engines.vllm.child, slime.engines.vllm.server, slime.engines.vllm.worker"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SLIME), str(ROOT / "base")])}
    subprocess.run([sys.executable, "-c", program], env=env, check=True)


def test_an_engine_uses_its_models_dtype_and_a_share_of_the_memory(
    model_path: Path,
) -> None:
    args = SimpleNamespace(
        model=str(model_path), dtype="auto", seed=0, kv_cache_memory_bytes=None, max_model_len=None
    )
    complete(args, [], on_cpu=False)
    assert (args.dtype, args.max_logprobs, args.kv_cache_memory_bytes) == ("float32", -1, None)
    complete(args, ["--dtype", "bfloat16", "--max_logprobs=9", "--seed", "5"], on_cpu=True)
    assert (args.kv_cache_memory_bytes, args.max_model_len) == (1 << 30, -1)
    again = SimpleNamespace(**vars(args))
    complete(again, ["--dtype=bfloat16", "--kv-cache-memory-bytes", "7"], on_cpu=True)
    assert again.seed != args.seed and again.dtype == args.dtype


def words_of(model_path: Path, *flags: str) -> Arguments:
    prompts = model_path.parent / "prompts.jsonl"
    prompts.write_text('{"prompt": "1+1", "label": "2"}\n')
    words = ["--hf-checkpoint", str(model_path), "--num-rollout", "1", "--prompt-data", str(prompts)]
    words += [
        "--input-key",
        "prompt",
        "--label-key",
        "label",
        "--rm-type",
        "math",
        "--n-samples-per-prompt",
        "2",
    ]
    env = {"VLLM_PYTHON": "/the/python", "SGLANG_PYTHON": "/another/engines/python"}
    return parse_args([*words, "--rollout-backend", "vllm", *flags], env=env)


def test_the_engines_of_a_run_are_checked_by_the_installed_vllm(
    model_path: Path, engine_python: str, tmp_path: Path
) -> None:
    flags = ["--engine-python", engine_python, "--run-dir", str(tmp_path / "run"), "--context-length", "512"]
    [spec] = server_specs(words_of(model_path, *flags, "--vllm-max-num-seqs", "8"))
    assert spec.command[-2:] == ["--vllm-max-num-seqs", "8"]
    assert spec.command[3:5] == ["--backend", "vllm"] and "--weights-file" in spec.command
    with pytest.raises(ConfigError, match=r"vLLM 0.32.0: unrecognized arguments: --max-seqs"):
        server_specs(words_of(model_path, *flags, "--vllm-max-seqs", "8"))
    with pytest.raises(ConfigError, match="serves only with --rollout-backend sglang"):
        words_of(model_path, "--sglang-mem-fraction-static", "0.8")


def test_several_gpus_and_judges_have_separate_settings(model_path: Path) -> None:
    args = words_of(
        model_path, "--rollout-num-gpus", "4", "--rollout-num-gpus-per-engine", "2", "--prm-num-gpus", "1",
        "--actor-num-gpus-per-node", "1", "--vllm-max-num-seqs", "8", "--prm-vllm-max-num-seqs", "2",
    )  # fmt: skip
    policy, judge = model_servers(args)
    assert args.engine_python == "/the/python"
    assert own_words(args, policy) == ["--vllm-max-num-seqs", "8", "--vllm-tensor-parallel-size", "2"]
    assert own_words(args, judge) == ["--vllm-max-num-seqs", "8", "--vllm-max-num-seqs", "2"]
