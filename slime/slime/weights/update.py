"""A weight update as a transaction over all engines: prepare, persist, switch, verify, announce. Independent of Ray.

Running requests continue during all steps. Before the switch, nothing changes for clients, and a failure discards the
candidate. After the switch, the update completes on all engines: it waits for a failing engine and brings it to the
new version. If that takes too long, all engines return to the old version.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from slime.errors import EngineError, TrainError
from slime.weights.engine_steps import (
    Engine,
    WrongWeights,
    discard,
    go_live,
    is_reachable,
    prepare,
    prepares_from_memory,
)
from slime.weights.versions import WeightVersion, read_live, write_live

logger = logging.getLogger(__name__)

T = TypeVar("T")
MAX_REJECTIONS = 3


@dataclass(frozen=True)
class Candidate:
    """New weights that may go live, made by step `rollout_id` (-1: none) from version `parent`.

    `metrics`: metrics of the step. `measurements`: measurements of the gate. `undo`: the candidate is a rollback to
    an older version (`drop_turns`, `reason`). `silent`: it is served, but not announced as the policy.
    """

    weights: WeightVersion
    rollout_id: int
    parent: int | None
    restored: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    measurements: dict[str, float] = field(default_factory=dict)
    undo: dict[str, Any] | None = None
    silent: bool = False


class CandidateRejected(TrainError):
    """A gate rejected the candidate; the live version stays.

    `stage`: the check that rejected it. `measurements`: measurements so far, by name.
    """

    def __init__(self, reason: str, stage: str = "", measurements: dict[str, float] | None = None) -> None:
        super().__init__(reason)
        self.stage, self.measurements = stage, measurements or {}


class Gate(Protocol):
    """Checks a candidate before any engine loads it; raises CandidateRejected to reject it."""

    def __call__(self, candidate: Candidate) -> None: ...


OnLive = Callable[[Candidate], None]


class WeightUpdate:
    """Makes candidates live on `engines`, one at a time.

    Args:
        engines: all engines that serve the policy.
        run_dir: run folder with `live_weights.json`.
        on_live: called after every engine confirmed version and checksum.
        gates: run in order before anything else.
        patience: seconds that one stage waits for a failing engine before the update is aborted.
        is_lost: whether the machine of the engine at this address is lost; if so, no stage waits for it.
        is_remote: whether the engine is on another machine and cannot read this machine's memory.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        run_dir: Path,
        on_live: OnLive,
        gates: Sequence[Gate] = (),
        patience: float = 90.0,
        retry_interval: float = 0.3,
        is_lost: Callable[[str], bool] = lambda url: False,
        is_remote: Callable[[str], bool] = lambda url: False,
    ) -> None:
        self.engines = list(engines)
        self.run_dir = run_dir
        self.on_live = on_live
        self.gates = list(gates)
        self.patience = patience
        self.retry_interval = retry_interval
        self.is_lost, self.is_remote = is_lost, is_remote

    def publish(
        self,
        candidate: Candidate,
        persist: Callable[[], None] = lambda: None,
        shared: str | None = None,
    ) -> None:
        """Makes the candidate live on all engines.

        Args:
            candidate: its artifact must be complete on disk when `persist` returns.
            persist: called before the switch; returns when checkpoint and artifact are durable.
            shared: slot with the same weights for engines on this machine, valid while `persist` runs. Other engines
                read the artifact.

        Raises:
            CandidateRejected: a gate rejected it; nothing changed.
            EngineError: an engine rejected it, or was unavailable for longer than `patience`; all reachable engines
                have the old version.
        """
        for gate in self.gates:
            gate(candidate)
        new, old = replace(candidate.weights, rollout_id=candidate.rollout_id), read_live(self.run_dir)
        try:
            ready = self.prepare_shared(new, shared, persist)
            self.on_each(
                lambda engine: (
                    None if engine in ready else self.until_done(engine, lambda: prepare(engine, new))
                )
            )
        except BaseException:
            self.on_each(discard)
            raise
        # from here on, an engine that restarts loads the new version
        write_live(self.run_dir, new)
        try:
            self.on_each(lambda engine: self.until_done(engine, lambda: go_live(engine, new)))
        except EngineError:
            self.roll_back(old)
            raise
        self.on_live(candidate)

    def prepare_shared(
        self, new: WeightVersion, shared: str | None, persist: Callable[[], None]
    ) -> list[Engine]:
        """Runs `persist` while engines load the version from shared memory; returns the engines that have loaded
        it."""
        if shared is None:
            persist()
            return []
        in_memory = replace(new, path=shared)
        with ThreadPoolExecutor(1) as pool:
            persisted = pool.submit(persist)
            results = self.on_each(
                lambda engine: not self.is_remote(engine.url) and prepares_from_memory(engine, in_memory)
            )
            persisted.result()
        return [engine for engine, ready in zip(self.engines, results, strict=True) if ready]

    def roll_back(self, old: WeightVersion | None) -> None:
        """Returns every reachable engine to the old version; an unreachable one will start with it."""
        if old is None:
            logger.error(
                "no earlier version to restore: engines may serve different versions until the next update"
            )
            return
        write_live(self.run_dir, old)
        for engine in self.engines:
            try:
                go_live(engine, old)
            except EngineError as error:
                logger.warning("%s did not return to version %d: %s", engine.url, old.version, error)

    def on_each(self, action: Callable[[Engine], T]) -> list[T]:
        """Runs the action on all engines concurrently; raises the first error after all have ended."""
        with ThreadPoolExecutor(max(1, len(self.engines))) as pool:
            return list(pool.map(action, self.engines))

    def until_done(self, engine: Engine, action: Callable[[], None]) -> None:
        """Repeats the action until it succeeds.

        It waits up to `patience` seconds for an unavailable engine. An engine that rejects the action gets
        `MAX_REJECTIONS` tries, so that two versions do not stay live.

        Raises:
            EngineError: the action failed; this is the last error.
        """
        deadline = time.monotonic() + self.patience
        tries = rejections = 0
        while True:
            tries += 1
            try:
                return action()
            except WrongWeights:
                raise
            except EngineError as error:
                if self.is_lost(engine.url):
                    logger.warning(
                        "%s is on a machine that is lost: the update continues without it", engine.url
                    )
                    return None
                rejections += 1 if is_reachable(engine) else 0
                if rejections >= MAX_REJECTIONS or time.monotonic() >= deadline:
                    raise
                if tries == 1:
                    logger.warning("trying again: %s", error)
                time.sleep(self.retry_interval)
