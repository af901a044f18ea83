"""External engines: they serve and receive every version of the weights, but the run does not start or stop them.

An engine that comes back with outdated weights is updated to the live ones.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from slime.engines.client import EngineControl
from slime.errors import ClusterError, ConfigError, EngineError
from slime.ray.servers.engine_clients import engine_client
from slime.weights.engine_steps import go_live, serves
from slime.weights.versions import read_live

if TYPE_CHECKING:
    from slime.engines.sglang.broadcast import SenderHandle
    from slime.flags.sides import ServingSide

logger = logging.getLogger(__name__)

FLAG = "--rollout-external-engine-addrs"
LOOK_INTERVAL = 15.0  # seconds between checks of all engines
START_POLL = 0.5  # seconds
VLLM_HINT = (
    "if it is vLLM, start it with python -m slime.engines.launch --backend vllm --model-path FOLDER --port N"
)


class ExternalEngines:
    """The engines of `args.rollout_external_engine_addrs`; empty if there are none.

    Args:
        sender: broadcasts weights; None: engines read them from disk.
    """

    def __init__(self, args: ServingSide, sender: SenderHandle | None = None) -> None:
        self.args = args
        self.run_dir = Path(args.run_dir)
        urls = [] if args.debug_train_only else args.rollout_external_engine_addrs
        over_gloo = bool(urls) and sender is not None and needs_gloo(args)
        self.controls = [engine_client(args, url, sender, over_gloo=over_gloo) for url in urls]
        self.unreachable: set[str] = set()
        self.looked = 0.0

    def wait_ready(self) -> None:
        """Returns when all respond and match the flags. If a version is live already, one engine is sufficient.

        Raises:
            ClusterError: they do not respond within --engine-start-timeout.
            ConfigError: an engine has the wrong backend or another model.
        """
        deadline = time.monotonic() + (self.args.engine_start_timeout or float("inf"))
        has_live_version = read_live(self.run_dir) is not None
        while missing := self.missing():
            self.note(set(missing))
            if has_live_version and len(missing) < len(self.controls):
                break
            if time.monotonic() < deadline:
                time.sleep(START_POLL)
                continue
            raise ClusterError(
                f"{', '.join(missing)} ({FLAG}) did not respond to GET /health within "
                f"{self.args.engine_start_timeout:g} s: start the engine there, or remove the "
                "address"
            )
        for engine in self.controls:
            if engine.url not in missing:
                check_kind(engine.url, self.args.rollout_backend)
            if not has_live_version:
                check_model(engine, self.args.hf_checkpoint)

    def missing(self) -> list[str]:
        return [engine.url for engine in self.controls if not engine.health()]

    def present(self) -> list[EngineControl]:
        """Returns the engines that a weight update waits for.

        An unreachable engine is skipped, and receives the weights when it is back.
        """
        missing = self.missing()
        if len(missing) == len(self.controls):
            return self.controls
        self.note(set(missing))
        return [engine for engine in self.controls if engine.url not in missing]

    def note(self, missing: set[str]) -> None:
        for url in sorted(missing - self.unreachable):
            logger.warning("%s does not respond; it will receive the live weights when it is back", url)
        for url in sorted(self.unreachable - missing):
            logger.warning("%s responds again", url)
        self.unreachable = missing

    def check_engines(self) -> None:
        """Checks periodically which engines are unreachable, and updates those that are back with outdated weights."""
        live = read_live(self.run_dir)
        if not self.controls or live is None or time.monotonic() - self.looked < LOOK_INTERVAL:
            return
        missing = set(self.missing())
        self.note(missing)
        for engine in self.controls:
            if engine.url in missing:
                continue
            try:
                if not serves(engine, live):
                    logger.warning(
                        "%s serves other weights: updating it to version %d", engine.url, live.version
                    )
                    go_live(engine, live)
            except EngineError as error:
                logger.warning("%s has not loaded version %d yet: %s", engine.url, live.version, error)
        self.looked = time.monotonic()


def needs_gloo(args: ServingSide) -> bool:
    """Returns whether weights are sent by gloo because NCCL cannot connect trainer and engines; logs it."""
    if args.actor_num_gpus_per_node == 0:
        return False
    from slime.engines.sglang.nccl import nccl_mismatch

    reason = nccl_mismatch(args.engine_python)
    if reason:
        logger.warning(
            "%s: weights are broadcast by gloo, from CPU memory; if the engines have the "
            "trainer's NCCL version, set SGLANG_PYTHON to a Python with their packages",
            reason,
        )
    return bool(reason)


def check_kind(url: str, backend: str) -> None:
    """Raises ConfigError if the engine at `url` has another backend, or is an SGLang without a required feature."""
    from slime.engines.sglang.capabilities import MEASURED_VERSION, check_capabilities

    try:
        info = httpx.get(f"{url}/model_info", timeout=60.0, trust_env=False).json()
        kind = info.get("backend", "sglang" if "weight_version" in info else None)
        if kind is None:
            raise ConfigError(f"{url} ({FLAG}) does not report its weights; {VLLM_HINT}")
        if kind != backend:
            raise ConfigError(f"{url} ({FLAG}) is {kind}, but this run has --rollout-backend {backend}")
        if kind == "sglang":
            version = str(
                httpx.get(f"{url}/server_info", timeout=60.0, trust_env=False).json().get("version")
            )
            if version != MEASURED_VERSION:
                check_capabilities(url, version)
    except (httpx.HTTPError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{url} ({FLAG}) does not respond to /model_info like an engine: {error!r}"
        ) from error
    except EngineError as error:
        raise ConfigError(f"{url} ({FLAG}): {error}") from error


def check_model(engine: EngineControl, folder: str) -> None:
    """Raises ConfigError if the engine serves a model of another shape.

    A difference that cannot be detected here makes the first update fail.
    """
    from slime.weights.artifact import read_artifact

    try:
        served = engine.info().model_path
        difference = read_artifact(folder).difference(read_artifact(served))
    except EngineError as error:
        logger.warning(
            "%s: its model cannot be checked before the first weight update: %s", engine.url, error
        )
        return
    if difference is not None:
        raise ConfigError(
            f"{engine.url} ({FLAG}) serves {served}, which {difference}; it must serve {folder}"
        )
