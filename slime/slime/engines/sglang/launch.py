"""`python -m slime.engines.launch --backend sglang --model-path FOLDER --port N [--sglang-... VALUE]`.

`--sglang-FLAG` is SGLang's `--FLAG`, checked by the installed SGLang itself. Flags that both have
(`--context-length`, `--max-running-requests`, ...) may be written either way.
"""

from __future__ import annotations

import os
import signal
import sys

import httpx

from slime.engines.child import ChildEngine, answers
from slime.engines.programs import child_command, child_environment
from slime.engines.sglang import child
from slime.engines.sglang.capabilities import MEASURED_VERSION, check_capabilities
from slime.engines.third_party import NO_KEY, LaunchRequest, ThirdPartyEngine, run, servable_weights
from slime.engines.toolchain import compiler_environment

HEALTH = {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0"}
"""Makes `/health` respond without generating. By default it generates a token, so it waits while the engine
is paused for an update and returns 503 after 20 s; a supervisor would then restart a healthy engine."""
ORPHANED = signal.SIGKILL
"""Signal to an SGLang whose launcher was killed. After SIGTERM it would first finish all open requests,
without a limit, and keep the port. Its processes request SIGKILL from the kernel for the exit of their
parent."""
COMMON = (
    "context-length",
    "max-running-requests",
    "chunked-prefill-size",
    "max-total-tokens",
    "device",
    "dtype",
    "log-level",
)
SGLANG = ThirdPartyEngine(
    name="SGLang",
    key="sglang",
    child=child.__file__,
    model_flag="--model-path",
    ours={
        "model-path": "use --model-path",
        "model": "use --model-path",
        "host": "use --host",
        "port": "use --port",
        "weight-version": "the trainer numbers weight versions",
        "api-key": NO_KEY,
        "admin-api-key": NO_KEY,
        "disaggregation-mode": "prefill and decode in different engines are not supported, because they need a router; "
        "use more engines, or more GPUs per engine (--rollout-num-gpus-per-engine)",
        "skip-tokenizer-init": "answers without text cannot be stopped by stop strings",
        "config": "pass the file's content as flags, which are checked",
    },
    common={name: name for name in COMMON},
)


def serve(request: LaunchRequest) -> int:
    """Starts SGLang, prints the ready line, and returns its exit status.

    Raises:
        ConfigError: there is no model or no weights to serve.
        EngineError: it exited, or lacks a required feature.
    """
    first = servable_weights(request)
    command = [
        *child_command(request.python, child.__file__),
        "--model-path",
        first.path,
        "--tokenizer-path",
        request.model_path,
    ]
    command += ["--host", request.host, "--port", str(request.port), "--weight-version", str(first.version)]
    threads = {} if request.threads is None else {"OMP_NUM_THREADS": str(request.threads)}
    variables = child_environment(request.python, os.environ)
    environment = {**HEALTH, **variables, **compiler_environment(request.python, variables), **threads}
    with ChildEngine([*command, *request.words], request.url, environment, ORPHANED) as engine:
        engine.wait_until(lambda: answers(request.url))
        version = _version_of(request.url)
        if version != MEASURED_VERSION:
            print(
                f"engine: warning: SGLang {version} is not the tested version {MEASURED_VERSION}",
                file=sys.stderr,
            )
            check_capabilities(request.url, version)
        engine.announce(request.model_path, first.version, backend="sglang", engine_version=version)
        return engine.wait()


def _version_of(url: str) -> str:
    answer = httpx.get(url + "/server_info", timeout=60.0, trust_env=False)
    return str(answer.json().get("version")) if answer.status_code == 200 else "of unknown version"


def launch(argv: list[str]) -> int:
    """Starts SGLang for `slime.engines.launch`. Returns an exit status; 2: invalid arguments."""
    return run(lambda: serve(SGLANG.parse(argv)))
