"""Builds the specs of a run's servers: engines of policy, judge and teacher, and servers added by hooks."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from claw_base.run_folder import records
from claw_base.run_folder.usage import meter_path
from slime.arguments.rules.engine import THIRD_PARTY
from slime.engines import toolchain
from slime.engines.sglang.nccl import check_same_nccl
from slime.engines.third_party import ThirdPartyEngine
from slime.errors import ConfigError
from slime.hooks import load_path
from slime.plan.gate_engine import check_gate_engine, log_gate_engine
from slime.plan.model_servers import GATE, ModelServers, model_servers
from slime.plan.of_arguments import share_words, smallest_gpu
from slime.processes.servers import ServerManager, ServerSpec
from slime.ray.placement import BundleSite, Placement
from slime.utils.idle_processors import usable_cpus
from slime.weights.cpu_dtype import dtype_on_cpu
from slime.weights.versions import live_file

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.flags.sides import ServingSide

logger = logging.getLogger(__name__)

SPLIT = {"sglang": "--sglang-tp-size", "vllm": "--vllm-tensor-parallel-size"}
"""The flag that splits a model over several GPUs, by engine."""
LIMITS = ("max_running_requests", "context_length")
ROLES = {"rollout": "serving", "prm": "judge"}
"""Purpose under which a rented engine's tokens are counted, by part."""
STREAM_INTERVAL = 4
"""Tokens per event of an SGLang stream; the first token is sent immediately. One process writes all events
and also reads all requests."""
INCREMENTS = "--sglang-incremental-streaming-output"
"""Makes SGLang send only new tokens per event. Otherwise every event repeats the whole answer with all
log-probs, and eight to ten long streams saturate that process while the GPU still has capacity."""


@dataclass(frozen=True)
class EngineHost:
    """A machine other than the driver's, on which an engine runs.

    Attributes:
        address: address for connections from other machines.
        folder: folder of process records and logs on it.
        python: path of the Python for the engine's launcher on it.
        port: a free port on it.
        sees_run: the run folder with the weight versions has the same path on it.
    """

    address: str
    folder: Path
    python: str
    port: int
    sees_run: bool


def server_specs(args: Arguments, elsewhere: Mapping[str, EngineHost] | None = None) -> list[ServerSpec]:
    """Returns the specs of all servers of the run (none with --debug-train-only) without starting them.

    Args:
        elsewhere: machines of engines that are not on the driver's machine, by engine name.

    Raises:
        ConfigError: a port is in use, the installed SGLang lacks a flag, or a hook rejects its arguments.
    """
    if args.debug_train_only:
        return []
    log_gate_engine(args)
    manager = ServerManager(args.run_dir)
    servers = model_servers(args)
    check_engine_flags(args, servers)
    hosts = elsewhere or {}
    specs = [
        engine_spec(args, server, index, manager, hosts.get(server.name_of(index)))
        for server in servers
        for index in range(server.count)
    ]
    endpoints: dict[str, list[str]] = {
        name: [spec.url for spec in specs if spec.role == role and spec.url]
        for name, role in (("policy", "engine"), ("judge", "judge_engine"), ("teacher", "teacher_engine"))
    }
    endpoints["policy"] += args.rollout_external_engine_addrs
    for path in args.service_path:
        start = load_path("service_path", path)
        try:
            specs += [ServerSpec(**service) for service in start(args, endpoints)]
        except Exception as error:  # before the start, any exception of a hook means invalid arguments
            own_words = getattr(error, "refusal", False)
            raise ConfigError(f"{error}" if own_words else f"--service-path {path}: {error}") from error
    manager.check_ports([spec for spec in specs if not spec.machine])
    return specs


def check_engine_flags(args: ServingSide, servers: list[ModelServers]) -> None:
    """Checks the flags of each server with the installed SGLang or vLLM. Raises ConfigError with its message."""
    if args.rollout_backend not in THIRD_PARTY:
        return
    engine = third_party_engine(args.rollout_backend)
    if args.rollout_backend == "sglang":
        check_sglang(args)
    python = args.engine_python or sys.executable
    third_party = [server for server in servers if server.count and server.role != GATE]
    for words in {tuple(own_words(args, server)) for server in third_party}:
        engine.check(python, engine.translate(list(words)))
    if args.rollout_backend == "sglang" and any(server.count and server.gpus for server in servers):
        check_toolchain(python)


def check_sglang(args: ServingSide) -> None:
    """Raises ConfigError if trainer and SGLang have different NCCL versions for a broadcast; logs missing
    features."""
    if args.update_weight_transport == "nccl" and args.rollout_num_gpus:
        check_same_nccl(args.engine_python or sys.executable)
    if "--sglang-enable-deterministic-inference" not in args.engine_words.get("rollout", []):
        logger.info(
            "SGLang ignores the seeds of requests (--rollout-seed) unless "
            "--sglang-enable-deterministic-inference is set, which is slower"
        )


def check_toolchain(python: str) -> None:
    """Raises ConfigError if SGLang could not compile GPU kernels, which it would report only after loading the model."""
    problems = toolchain.problems(python, os.environ)
    if problems:
        raise ConfigError("SGLang compiles GPU kernels at its first computation: " + "; ".join(problems))


def third_party_engine(backend: str) -> ThirdPartyEngine:
    """Returns the launch description of SGLang or vLLM."""
    from slime.engines.sglang.launch import SGLANG
    from slime.engines.vllm.launch import VLLM

    return {"sglang": SGLANG, "vllm": VLLM}[backend]


def own_words(args: ServingSide, server: ModelServers) -> list[str]:
    """Returns the `--sglang-` or `--vllm-` arguments of one server: defaults, those for all servers, its own."""
    words = args.engine_words
    own = share_words(args, smallest_gpu()) if server.part == "rollout" else words.get(server.part, [])
    if args.rollout_backend != "embedded" and server.gpus > 1:
        own = [SPLIT[args.rollout_backend], str(server.gpus), *own]
    defaults = []
    if args.rollout_backend == "sglang" and server.gpus:
        defaults = ["--sglang-stream-interval", str(STREAM_INTERVAL), INCREMENTS]
    return [*defaults, *words.get("rollout", []), *own]


def engine_spec(
    args: ServingSide,
    server: ModelServers,
    index: int,
    manager: ServerManager,
    host: EngineHost | None = None,
) -> ServerSpec:
    """Returns the spec of one engine, on the requested port, else on the port used by an earlier driver of this run."""
    name = server.name_of(index)
    policy = server.role == "engine"
    chosen = args.engine_port + index if args.engine_port and policy else 0
    port = chosen or (manager.choose_port(name) if host is None else host.port)
    address, folder = ("127.0.0.1", Path(args.run_dir)) if host is None else (host.address, host.folder)
    live = ["--weights-file", str(live_file(Path(args.run_dir)))] if policy else []
    if server.role == GATE:
        return gate_spec(args, name, port)
    if args.rollout_backend == "rented":
        return rented_spec(args, name, server.role, port, live, ROLES[server.part])
    command = launch(args.rollout_backend, server.model, port, address)
    command[0] = sys.executable if host is None else host.python
    command += live  # a restarted engine loads the live weights
    command += ["--device", "cuda" if server.gpus else "cpu"]
    if args.rollout_backend == "embedded":
        command += ["--record-as", str(records.record_path(folder, name).with_suffix(""))]
        if args.use_idle_processors and not server.gpus:
            command.append("--use-idle-processors")
        if policy and not server.gpus:
            command += ["--dtype", dtype_on_cpu(args.bf16, Path(args.run_dir))]
    if args.rollout_backend == "embedded" or not server.gpus:
        command += ["--threads", str(args.engine_threads)]
    for option in (*LIMITS, "chunked_prefill_size"):
        value = vars(args)[option]
        if option == "context_length" and server.part == "prm":
            value = args.prm_context_length or value
        if value is not None:
            command += ["--" + option.replace("_", "-"), str(value)]
    if args.rollout_backend == "vllm" and policy and args.weight_probe_limit is not None:
        command += ["--probe-limit", f"{args.weight_probe_limit:g}"]
    if args.rollout_backend != "embedded":
        command += ["--engine-python", args.engine_python] if args.engine_python else []
        if args.offload_rollout and policy:
            command += ["--sglang-enable-memory-saver", "--sglang-enable-weights-cpu-backup"]
        command += own_words(args, server)
    start_limit = args.engine_start_limit or float("inf")
    url = f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"
    machine = "" if host is None else address
    return ServerSpec(name, server.role, command, url, start_timeout=start_limit, machine=machine)


def gate_spec(args: ServingSide, name: str, port: int) -> ServerSpec:
    """Returns the spec of an embedded CPU engine for the gate only, which loads one version at a time.

    It computes in fp32, because bf16 is ten times slower on CPUs without bf16 multiplication. Raises like
    `check_gate_engine`.
    """
    check_gate_engine(args)
    threads = max(1, usable_cpus() // 2)
    command = launch("embedded", args.hf_checkpoint, port)
    command += ["--device", "cpu", "--cast-weights", "--threads", str(threads), "--nice", "5"]
    command += ["--max-running-requests", "1", "--standby", "off"]
    command += ["--record-as", str(records.record_path(Path(args.run_dir), name).with_suffix(""))]
    start_limit = args.engine_start_limit or float("inf")
    return ServerSpec(name, GATE, command, f"http://127.0.0.1:{port}", start_timeout=start_limit)


def launch(backend: str, model: str, port: int, host: str = "127.0.0.1") -> list[str]:
    """Returns the launch command of an engine, without the flags of its backend."""
    command = [sys.executable, "-m", "slime.engines.launch", "--backend", backend]
    return [*command, "--model-path", model, "--host", host, "--port", str(port)]


def rented_spec(
    args: ServingSide, name: str, role: str, port: int, version: list[str], prefix: str
) -> ServerSpec:
    """Returns the spec of an engine whose model runs at a service.

    Args:
        version: flag with its live weights; empty for the base model.
    """
    command = [*launch("rented", args.hf_checkpoint, port), *version]
    for option in ("rented_service", "rented_model", "rented_url", "rented_stream_tokens", *LIMITS):
        if value := vars(args)[option]:
            command += ["--" + option.replace("_", "-"), str(value)]
    command += ["--usage-file", str(meter_path(args.run_dir, name)), "--usage-role", prefix]
    start_limit = args.engine_start_limit or float("inf")
    return ServerSpec(name, role, command, f"http://127.0.0.1:{port}", start_timeout=start_limit)


def sites_of_engines(args: ServingSide, placement: Placement) -> dict[str, list[BundleSite]]:
    """Returns the GPUs of each engine that has some, by engine name.

    Raises:
        ConfigError: the GPUs of one engine are on different machines.
    """
    by_engine: dict[str, list[BundleSite]] = {}
    for server in model_servers(args):
        sites = placement.sites.get(server.part, [])
        for index in range(server.count if server.gpus else 0):
            own = sites[index * server.gpus : (index + 1) * server.gpus]
            if len({site.node for site in own}) > 1:
                raise ConfigError(
                    f"the {server.gpus} GPUs of {server.name_of(index)} are on different "
                    "machines: use at most as many GPUs per engine as a machine has (TP)"
                )
            by_engine[server.name_of(index)] = own
    return by_engine


def on_own_gpus(specs: list[ServerSpec], placement: Placement, args: ServingSide) -> list[ServerSpec]:
    """Restricts each engine to its own GPUs; servers on the CPU are unchanged. Raises like
    `sites_of_engines`."""
    sites = sites_of_engines(args, placement)
    return [
        replace(spec, env={**spec.env, **visible(sites[spec.name])}) if spec.name in sites else spec
        for spec in specs
    ]


def visible(sites: Sequence[BundleSite]) -> dict[str, str]:
    """Returns the environment variable that restricts an engine to these GPUs."""
    return {"CUDA_VISIBLE_DEVICES": ",".join(str(site.gpu) for site in sites)}
