"""The servers of a run as specs: engines, and what the service hooks ask for."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from slime.plugins import load_attr
from slime.ray.placement import Placement
from slime.servers import ServerManager, ServerSpec
from slime.versions import live_file


def server_specs(args: Any) -> list[ServerSpec]:
    """All servers of the run; nothing is started.

    Raises:
        ConfigError: a port that another program holds, or a hook that refuses its arguments.
    """
    manager = ServerManager(args.run_dir)
    specs = [engine_spec(args, f"engine-{index}", manager) for index in range(args.num_engines)]
    endpoints = {"policy": [spec.url for spec in specs], "judge": []}
    for path in args.service_path:
        specs += [ServerSpec(**service) for service in load_attr(path)(args, endpoints)]
    manager.check_ports(specs)
    return specs


def engine_spec(args: Any, name: str, manager: ServerManager) -> ServerSpec:
    """One engine, on the port that an earlier driver of this run folder gave it if there was one."""
    port = manager.choose_port(name)
    command = [sys.executable, "-m", "slime.backends.launch", "--backend", args.backend]
    command += ["--model-path", str(args.hf_checkpoint), "--host", "127.0.0.1", "--port", str(port)]
    # An engine that restarts comes back with the weights that are live by then.
    command += ["--weights-file", str(live_file(Path(args.run_dir)))]
    if args.rollout_max_context_len is not None:
        command += ["--context-length", str(args.rollout_max_context_len)]
    return ServerSpec(
        name, "engine", command, f"http://127.0.0.1:{port}", start_timeout=args.engine_start_timeout
    )


def on_own_gpus(specs: list[ServerSpec], placement: Placement) -> list[ServerSpec]:
    """Shows each engine only its share of the rollout GPUs; without GPUs the specs stay as they are."""
    engines = [spec.name for spec in specs if spec.role == "engine"]
    if not placement.use_gpus or not engines:
        return specs
    gpus = [str(site.gpu) for site in placement.sites_of("rollout")]
    share = len(gpus) // len(engines)
    own = {name: ",".join(gpus[index * share : (index + 1) * share]) for index, name in enumerate(engines)}
    return [
        replace(spec, env={**spec.env, "CUDA_VISIBLE_DEVICES": own[spec.name]}) if spec.name in own else spec
        for spec in specs
    ]
