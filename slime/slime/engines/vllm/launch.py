"""`python -m slime.engines.launch --backend vllm --model-path FOLDER --port N [--vllm-... VALUE]`.

`--vllm-FLAG` is vLLM's `--FLAG`, checked by the installed vLLM itself. `--context-length` is its `--max-model-len`,
`--max-running-requests` its `--max-num-seqs`, `--chunked-prefill-size` its `--max-num-batched-tokens`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import httpx

import claw_base
import slime
from slime.engines.child import ChildEngine, answers
from slime.engines.programs import child_command, child_environment
from slime.engines.third_party import NO_KEY, LaunchRequest, ThirdPartyEngine, run, servable_weights
from slime.engines.toolchain import compiler_environment
from slime.engines.vllm import child

MEASURED_VERSION = "0.32.0"
UNPROVEN = "the served weights cannot be verified"
VLLM = ThirdPartyEngine(
    name="vLLM",
    key="vllm",
    child=child.__file__,
    model_flag="--model",
    ours={
        "model": "use --model-path",
        "tokenizer": "the launcher uses the tokenizer in --model-path",
        "host": "use --host",
        "port": "use --port",
        "api-key": NO_KEY,
        "worker-extension-cls": "the launcher sets its own, which loads and verifies weights",
        "logprobs-mode": "training needs log-probs at the sampling temperature, before truncation",
        "speculative-config": "a draft model would not receive the trained weights",
        "quantization": UNPROVEN,
        "enable-lora": "adapters are merged into the weights before these are sent to the engine",
        "data-parallel-size": "each engine is one process with its own weights; use more engines",
        "skip-tokenizer-init": "answers without text cannot be stopped by stop strings",
        "config": "pass the file's content as flags, which are checked",
    },
    common={
        "context-length": "max-model-len",
        "max-running-requests": "max-num-seqs",
        "chunked-prefill-size": "max-num-batched-tokens",
        "dtype": "dtype",
    },
)


def serve(request: LaunchRequest) -> int:
    """Starts vLLM, prints the ready line, and returns its exit status.

    Raises:
        ConfigError: there is no model or no weights to serve.
        EngineError: it exited, or serves other weights than the folder's.
    """
    first = servable_weights(request)
    ours = {
        "host": request.host,
        "port": request.port,
        "model_path": request.model_path,
        "version": first.version,
        "checksum": first.checksum,
        "device": request.device,
        "probe_limit": request.probe_limit,
    }
    command = [*child_command(request.python, child.__file__), json.dumps(ours), "--model", first.path]
    command += ["--tokenizer", request.model_path, *request.words]
    with tempfile.TemporaryDirectory(prefix="slime-vllm-") as visible:
        for package in (slime, claw_base):
            os.symlink(Path(str(package.__file__)).parent, Path(visible) / package.__name__)
        with ChildEngine(command, request.url, environment(request, visible)) as engine:
            engine.wait_until(lambda: answers(request.url))
            python = str(
                httpx.get(request.url + "/server_info", timeout=60.0, trust_env=False).json()["version"]
            )
            if python != MEASURED_VERSION:
                print(
                    f"engine: warning: vLLM {python} is not the tested version {MEASURED_VERSION}",
                    file=sys.stderr,
                )
            engine.announce(request.model_path, first.version, backend="vllm", engine_version=python)
            return engine.wait()


def environment(request: LaunchRequest, visible: str) -> dict[str, str]:
    """Returns the child's environment, in which vLLM's Python can import only this package and `claw_base`.

    Args:
        visible: folder for links to these packages.
    """
    variables = child_environment(request.python, os.environ)
    env = {**variables, **compiler_environment(request.python, variables), "PYTHONPATH": visible}
    env |= {"VLLM_USE_V2_MODEL_RUNNER": "0", "VLLM_NO_USAGE_STATS": "1"}
    env.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    if request.threads is not None:
        env |= {"OMP_NUM_THREADS": str(request.threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    return env


def launch(argv: list[str]) -> int:
    """Starts vLLM for `slime.engines.launch`. Returns an exit status; 2: invalid arguments."""
    return run(lambda: serve(VLLM.parse(argv)))
