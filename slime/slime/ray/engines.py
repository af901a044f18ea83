"""The servers of a run as specs: engines, and what the service hooks ask for."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from slime.errors import ConfigError
from slime.hooks import load_path
from slime.ray.placement import Placement
from slime.servers import ServerManager, ServerSpec
from slime.versions import live_file


def server_specs(args: Any) -> list[ServerSpec]:
    """All servers of the run, none with --debug-train-only; nothing is started.

    Raises:
        ConfigError: a port that another program holds, or a hook that refuses its arguments.
    """
    if args.debug_train_only:
        return []
    manager = ServerManager(args.run_dir)
    count = args.rollout_num_gpus or args.rollout_num_engines
    specs = [engine_spec(args, index, manager) for index in range(count)]
    endpoints = {"policy": [spec.url for spec in specs], "judge": []}
    for path in args.service_path:
        start = load_path("service_path", path)
        try:
            specs += [ServerSpec(**service) for service in start(args, endpoints)]
        except Exception as error:  # before anything runs, whatever a hook raises is a refusal
            raise ConfigError(f"--service-path {path}: {error}") from error
    manager.check_ports(specs)
    return specs


def engine_spec(args: Any, index: int, manager: ServerManager) -> ServerSpec:
    """One engine, on the port that was asked for, else on the one an earlier driver of this run chose."""
    name = f"engine-{index}"
    port = args.engine_port + index if args.engine_port else manager.choose_port(name)
    command = [sys.executable, "-m", "slime.backends.launch", "--backend", args.rollout_backend]
    command += ["--model-path", args.hf_checkpoint, "--host", "127.0.0.1", "--port", str(port)]
    # An engine that restarts comes back with the weights that are live by then.
    command += ["--weights-file", str(live_file(Path(args.run_dir)))]
    command += [
        "--threads",
        str(args.engine_threads),
        "--max-running-requests",
        str(args.max_running_requests),
    ]
    command += ["--chunked-prefill-size", str(args.chunked_prefill_size)]
    command += ["--device", "cuda" if args.rollout_num_gpus else "cpu"]
    if args.context_length is not None:
        command += ["--context-length", str(args.context_length)]
    start_limit = args.engine_start_timeout or float("inf")
    return ServerSpec(name, "engine", command, f"http://127.0.0.1:{port}", start_timeout=start_limit)


def on_own_gpus(specs: list[ServerSpec], placement: Placement) -> list[ServerSpec]:
    """Shows each engine only its own GPU; what serves on the CPU stays as it is."""
    gpus = {f"engine-{index}": site.gpu for index, site in enumerate(placement.sites["rollout"])}
    return [
        spec
        if gpus.get(spec.name) is None
        else replace(spec, env={"CUDA_VISIBLE_DEVICES": str(gpus[spec.name])})
        for spec in specs
    ]
