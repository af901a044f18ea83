"""A judge worker: python -m openclaw.judge.worker --rl-buffer-dir DIR --method-path MODULE:ATTR

Any number of workers share a buffer. A worker that dies loses nothing: its claims expire and another one takes over.
SIGTERM or Ctrl-C lets it finish the turns in progress.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from claw_base.settings.command_line import load, loaded, parser_of
from claw_base.settings.declare import REQUIRED, flag
from openclaw.common.version import VERSION
from openclaw.errors import ConfigError, StoreError
from openclaw.judge.backends.base import make_backend
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings, add_flags, load_settings
from openclaw.judge.teacher import settings as teacher_settings
from openclaw.judge.turn_judge import JudgeLimits, TurnJudge
from openclaw.methods.method import Method, MethodContext, Needs
from openclaw.settings import BufferAddress
from openclaw.store import RolloutStore, StoreWriter

if TYPE_CHECKING:
    from openclaw.judge.teacher.log_probs import Teacher
    from openclaw.methods.hinted_prompt import HintedPrompts

log = logging.getLogger("openclaw.judge")

POLL_SECONDS = 0.2
CLAIM_MARGIN_SECONDS = 15.0
"""A claim lasts for the time-out of the votes plus these seconds."""
STORE_RETRY_SECONDS = 2.0
LOOK_SECONDS = 0.5
"""Seconds between checks whether turns that are being judged were deleted."""


class JudgeWorker:
    """Claims answered turns and judges up to `concurrency` of them at a time."""

    def __init__(
        self, name: str, store: RolloutStore, judge: TurnJudge, claim_seconds: float, concurrency: int
    ) -> None:
        self._name = name
        self._store = store
        self._judge = judge
        self._claim_seconds = claim_seconds
        self._concurrency = concurrency
        self._running: set[asyncio.Task[None]] = set()
        self._next_look = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set, then finishes the turns in progress. Deleted turns are no longer judged. Retries a
        failing store."""
        released = await asyncio.to_thread(self._store.judgements.release_claims_of, self._name)
        log.info("judge started name=%s claims_of_before=%d", self._name, released)
        while not stop.is_set():
            try:
                await self._stop_deleted()
                claimed = await self._claim()
            except StoreError as error:
                log.error("store failed error=%s", error)
                await _wait(stop, STORE_RETRY_SECONDS)
                continue
            if not claimed:
                await _wait(stop, POLL_SECONDS)
        await asyncio.gather(*self._running, return_exceptions=True)
        log.info("judge stopped name=%s", self._name)

    async def _claim(self) -> int:
        """Claims free turns and starts to judge them; returns their number."""
        free = self._concurrency - len(self._running)
        if free <= 0 or time.monotonic() < self._judge.rests_until:
            return 0
        turns = await asyncio.to_thread(self._store.judgements.claim, self._name, free, self._claim_seconds)
        for turn in turns:
            task = asyncio.create_task(self._judge.judge(turn), name=turn.id)
            self._running.add(task)
            task.add_done_callback(self._ended)
        return len(turns)

    async def _stop_deleted(self) -> None:
        """Stops judging turns that were deleted, so that no further request with their text is sent."""
        running = list(self._running)
        if not running or time.monotonic() < self._next_look:
            return
        stored = await asyncio.to_thread(self._store.turns.stored_among, [one.get_name() for one in running])
        self._next_look = time.monotonic() + LOOK_SECONDS
        for task in running:
            if task.get_name() not in stored:
                task.cancel()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error(
                "turn not stored, judged again when its claim expires: turn=%s error=%s",
                task.get_name(),
                task.exception(),
            )


async def _wait(stop: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(stop.wait(), seconds)
    except TimeoutError:
        return


@dataclass(frozen=True, kw_only=True)
class WorkerSettings(BufferAddress):
    """Settings of a worker: the store, and the method. Raises ConfigError if a method option is not a number."""

    method_path: str = flag(REQUIRED, "module:attr that converts a turn to a sample, or drops it")
    worker_name: str | None = flag(None, "name that is unique among running workers")
    model_path: str | None = flag(
        None, "folder of the policy's model, for methods that use hints", unit="path"
    )
    method_option: tuple[str, ...] = flag((), "option of the method; repeatable", unit="NAME=NUMBER")
    teacher_source: str = flag("trainer", "trainer, or inference (the teacher runs on an engine)")

    def __post_init__(self) -> None:
        _ = self.options

    @property
    def options(self) -> dict[str, float]:
        """Returns the method's options by name."""
        return dict(_named_number(text) for text in self.method_option)


def build_parser() -> argparse.ArgumentParser:
    """Returns the parser of the worker's command line."""
    parser = parser_of(WorkerSettings, "python -m openclaw.judge.worker", "Judges answered turns.", VERSION)
    add_flags(parser.add_argument_group("judge", "Who judges, and how."), short=True)
    teacher_settings.add_flags(parser.add_argument_group("teacher", "With --teacher-source inference."))
    return parser


def _named_number(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name, float(number)
    except ValueError as error:
        raise ConfigError(f"argument --method-option: {text} is not NAME=NUMBER") from error


async def serve(args: argparse.Namespace) -> None:
    """Runs a worker until SIGTERM or SIGINT. Raises ConfigError and StoreError at start."""
    own, settings = load(WorkerSettings, vars(args)), load_settings(args)
    method = Method.load(own.method_path)
    chosen = {"eval_mode": settings.eval_mode, **own.options}
    needs = method.needs(chosen)
    metrics = JudgeMetrics(
        settings.judge_backend, settings.judge_neutral_limit, settings.judge_neutral_window
    )
    prompts = _hinted_prompts(own.model_path) if needs.hint else None
    teacher = _teacher(args, own, settings, needs, prompts, metrics)
    backend = make_backend(settings, metrics)
    store = RolloutStore(own.buffer)
    writer = StoreWriter(store.database)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    context = MethodContext(prompts, chosen)
    judge = TurnJudge(store, writer, backend, method, limits_of(settings), metrics, context, teacher)
    claim_seconds = settings.judge_timeout * (2 if teacher else 1) + CLAIM_MARGIN_SECONDS
    name = f"judge-{os.getpid()}" if own.worker_name is None else own.worker_name
    worker = JudgeWorker(name, store, judge, claim_seconds, settings.judge_concurrency)
    reporting = asyncio.create_task(report(metrics, settings.judge_metrics_interval))
    try:
        await worker.run(stop)
    finally:
        reporting.cancel()
        metrics.write()
        await backend.close()
        if teacher is not None:
            await teacher.close()
        await asyncio.to_thread(writer.close)
        store.close()


def limits_of(settings: JudgeSettings) -> JudgeLimits:
    """Returns the limits for judging one turn."""
    return JudgeLimits(
        votes=settings.prm_m,
        threshold=settings.majority_vote_threshold,
        timeout=settings.judge_timeout,
        attempts=settings.judge_attempts,
        hint_max_chars=settings.judge_hint_max_chars,
    )


def _hinted_prompts(model_path: str | None) -> HintedPrompts:
    if model_path is None:
        raise ConfigError("this method uses hints: name the policy's model folder with --model-path")
    from openclaw.methods.hinted_prompt import (
        HintedPrompts,  # needs tokenizers, which other workers do not load
    )

    return HintedPrompts.of(model_path)


def _teacher(
    args: argparse.Namespace, own: WorkerSettings, settings: JudgeSettings, needs: Needs,
    prompts: HintedPrompts | None, metrics: JudgeMetrics,
) -> Teacher | None:  # fmt: skip
    """Returns the teacher on an engine, if there is one."""
    if not teacher_settings.is_asked(needs, own.teacher_source) or prompts is None or needs.teacher == "none":
        return None
    from openclaw.judge.teacher.log_probs import make_teacher

    top_k = int(own.options.get("distill_topk", 0))
    engines = teacher_settings.load_settings(args)
    return make_teacher(engines, settings, prompts.tokenizer, needs.teacher, top_k, metrics)


async def report(metrics: JudgeMetrics, interval: float) -> None:
    """Writes the metrics every `interval` seconds, until cancelled."""
    while True:
        await asyncio.sleep(interval)
        metrics.write()


def main(argv: Sequence[str] | None = None) -> int:
    """Returns the exit status: 0 stopped, 2 invalid configuration or store."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO, stream=sys.stderr)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    parser = build_parser()
    args = parser.parse_args(argv)
    loaded(parser, WorkerSettings, args)
    # numpy reads them when it is imported. While a trainer uses the other cores, two threads need seven
    # times the processor time of one
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    try:
        asyncio.run(serve(args))
    except (ConfigError, StoreError) as error:
        print(f"judge worker: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
