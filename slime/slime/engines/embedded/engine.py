"""The decode loop: schedule, run, sample, publish. One thread owns the model and every sequence.

Other threads call `submit`, `abort`, `pause`, `resume` and `between_steps`, which take effect between two
steps. After each step `on_progress` receives the sequences that advanced.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

import torch

from slime.engines.embedded.lora.table import AdapterTable
from slime.engines.embedded.model import ServedModel, first_line
from slime.engines.embedded.sampler import sample, score_prompt
from slime.engines.embedded.scheduler import Chunk, Scheduler, SchedulerLimits
from slime.engines.embedded.sequence import Sequence
from slime.engines.embedded.step import EngineStep

logger = logging.getLogger(__name__)


@dataclass
class Counters:
    """Counters of the engine since its start."""

    steps: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    failed_steps: int = 0


class Engine:
    """Continuous batching over one model.

    Args:
        threads: returns the number of threads for the next step.
        adapters: maximum adapters in memory; 0 disables adapters.

    Attributes:
        version: the live weight version, recorded for every token.
    """

    def __init__(
        self,
        model: ServedModel,
        limits: SchedulerLimits,
        threads: Callable[[], int] = lambda: 1,
        adapters: int = 0,
    ) -> None:
        self.model = model
        self.scheduler = Scheduler(limits)
        self.adapters = AdapterTable(model, adapters, self) if adapters else None
        if self.adapters is not None:
            self.scheduler.is_ready = self.adapters.is_ready
        self.counters = Counters()
        self.version: Callable[[], int] = lambda: 0
        self.on_progress: Callable[[list[Sequence]], None] = lambda sequences: None
        self.paused = False
        self.released = False
        self.last_step = time.monotonic()
        self._threads, self._last_threads = threads, 0
        self._calls: deque[Callable[[], None]] = deque()
        self._wake = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._loop, name="decode", daemon=True)

    # Called by other threads.

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops the decode thread after its current step."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def submit(self, sequence: Sequence) -> None:
        self.post(lambda: self._add(sequence))

    def abort(self, rid: str | None) -> None:
        """Ends the request `rid` (None: all requests) with finish reason "abort"; unknown ids are ignored."""
        self.post(lambda: self._abort(rid))

    def pause(self, mode: str) -> None:
        """Stops decoding.

        Args:
            mode: "abort" ends all requests, "retract" requeues them without cached keys and values,
                "in_place" keeps them.
        """
        self.between_steps(lambda: self._pause(mode))

    def resume(self) -> None:
        self.between_steps(lambda: setattr(self, "paused", False))

    def flush_cache(self) -> None:
        """Drops cached keys and values of finished requests."""
        self.between_steps(self.scheduler.prefixes.clear)

    def release_memory(self) -> None:
        """Frees cached keys and values, and moves weights off a GPU. Requests wait and lose no tokens."""
        self.between_steps(self._release)

    def resume_memory(self) -> None:
        """Reverses `release_memory`; no-op if memory is not released."""
        self.between_steps(self._resume_memory)

    def between_steps(self, call: Callable[[], None]) -> None:
        """Runs `call` in the decode thread between two steps; returns once it has run, and raises its exceptions."""
        done: Future[None] = Future()

        def run() -> None:
            try:
                call()
            except Exception as error:  # passed to the caller
                done.set_exception(error)
            else:
                done.set_result(None)

        self.post(run)
        done.result()

    def replace_weights(self, install: Callable[[], None]) -> None:
        """Runs `install` between two steps.

        Decoding sequences keep their cached keys and values. Partly prefilled prompts restart, so that an
        answer of one version depends only on that version.
        """

        def replace() -> None:
            install()
            self.scheduler.restart_prefills()

        self.between_steps(replace)

    def post(self, call: Callable[[], None]) -> None:
        """Runs `call` in the decode thread between two steps; does not wait, and `call` must not raise."""
        self._calls.append(call)
        self._wake.set()

    # Called by the decode thread.

    def _loop(self) -> None:
        with torch.inference_mode():
            while not self._stopping:
                self._wake.clear()
                while self._calls:
                    self._calls.popleft()()
                if self.paused or not self.scheduler.has_work:
                    self.last_step = time.monotonic()
                    self._wake.wait(timeout=1.0)
                else:
                    self._guarded_step()
                    self.last_step = time.monotonic()
                    if self.scheduler.waits_for_adapters:
                        self._wake.wait(timeout=1.0)

    def _guarded_step(self) -> None:
        step = EngineStep()
        try:
            self.step(step)
        except Exception as error:  # a failing batch must not stop the engine
            logger.exception("decode step failed")
            self.counters.failed_steps += 1
            victims = step.sequences or self.scheduler.active
            for sequence in victims:
                self._finish(sequence, failure(f"engine step failed: {first_line(error)}"))
            self.on_progress(victims)

    def _set_threads(self) -> None:
        if (count := self._threads()) != self._last_threads:
            torch.set_num_threads(count)
            self._last_threads = count

    def step(self, step: EngineStep) -> None:
        """Schedules, runs, samples, publishes."""
        self._set_threads()
        step.assemble(self.scheduler, self.model)
        if not step.ids:
            return
        if self.adapters is not None:
            self.adapters.begin(step)
        logits = self.model.forward(step.ids, step.positions, step.keep, step.batch, step.images)
        self._advance(step)
        for part in step.scored:
            score_prompt(logits[part.row : part.row + part.count], part.sequence, part.first)
        if step.sampled:
            rows = logits if len(step.sampled) == len(step.keep) else logits[step.sampled_at]
            self._publish(step.sampled, *sample(rows, step.sampled))
        self._finish_scoring(step.chunks)
        self.counters.steps += 1
        self.on_progress(step.sampled + [c.sequence for c in step.chunks if c.sequence.finish])

    def _advance(self, step: EngineStep) -> None:
        """Updates the sequences after a forward pass, which has stored one more token a row, and the chunks."""
        for span in step.batch.decode:
            for row in span.slab.rows:
                row.cached += 1
        for chunk in step.chunks:
            chunk.sequence.cached = chunk.last
            self.counters.prompt_tokens += chunk.last - chunk.first
        for chunk in step.chunks:
            if chunk.completes and chunk.sequence.max_new_tokens > 0:
                self.scheduler.start_decoding(chunk.sequence)

    def _publish(self, rows: list[Sequence], ids: list[int], log_probs: list[float]) -> None:
        version = self.version()
        for row, token, log_prob in zip(rows, ids, log_probs, strict=True):
            if not math.isfinite(log_prob):
                self._finish(row, failure("the model computed logits that are not finite"))
                continue
            row.append(token, log_prob, version if row.adapter is None else self._version_of(row))
            if row.grammar is not None and (error := row.grammar.advance(token)):
                row.finish = refusal(f"sampling_params.json_schema: {error}")
            if row.finish is not None:
                self._finish(row, row.finish)
            row.published = len(row.output_ids)
        self.counters.generated_tokens += len(rows)

    def _finish_scoring(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            if chunk.completes and chunk.sequence.max_new_tokens == 0:
                chunk.sequence.version = self._version_of(chunk.sequence)
                self._finish(chunk.sequence, {"type": "length", "length": 0})

    def _finish(self, sequence: Sequence, reason: dict[str, object]) -> None:
        if "status_code" not in reason:
            self.scheduler.keep(sequence)
        self.scheduler.drop(sequence, wipe="status_code" in reason)
        if sequence.finish is None:
            sequence.end(reason)
        self.counters.finished += 1

    def _version_of(self, sequence: Sequence) -> int:
        """Returns the live version that answers: the base model's, or that of the request's adapter."""
        if sequence.adapter is None or self.adapters is None:
            return self.version()
        return self.adapters.version(sequence.adapter)

    def _add(self, sequence: Sequence) -> None:
        if sequence.adapter is not None and (
            self.adapters is None or not self.adapters.knows(sequence.adapter)
        ):
            sequence.end({"type": "abort", "message": f"the adapter {sequence.adapter!r} was unloaded"})
            self.on_progress([sequence])
            return
        sequence.version = self._version_of(sequence)
        self.scheduler.add(sequence)

    def adapters_of(self, waiting: bool) -> set[str]:
        """Returns the names of the adapters of waiting or of running requests."""
        some = self.scheduler.queued if waiting else self.scheduler.active
        return {sequence.adapter for sequence in some if sequence.adapter is not None}

    def adapter_replaced(self, name: str) -> None:
        """Invalidates keys and values of an earlier version; partly prefilled prompts of this adapter start again."""
        self.scheduler.restart_prefills(name)

    def end_requests(self, name: str, reason: dict[str, object]) -> None:
        """Ends the requests of an adapter, including waiting ones."""
        sequences = [sequence for sequence in self.scheduler.find(None) if sequence.adapter == name]
        for sequence in sequences:
            self._finish(sequence, reason)
        self.on_progress(sequences)

    def _abort(self, rid: str | None) -> None:
        sequences = self.scheduler.find(rid)
        for sequence in sequences:
            self._finish(sequence, {"type": "abort", "message": "aborted by request"})
        self.on_progress(sequences)

    def _pause(self, mode: str) -> None:
        self.paused = True
        if mode == "abort":
            self._abort(None)
        elif mode == "retract":
            self.scheduler.retract_all()

    def _release(self) -> None:
        self.released = True
        self._pause("retract")
        self.scheduler.prefixes.clear()
        if self.adapters is not None:
            self.adapters.drop_all()
        self.model.move(torch.device("cpu"))

    def _resume_memory(self) -> None:
        if self.released:
            self.model.move(self.model.device)
            self.released = self.paused = False


def refusal(message: str) -> dict[str, object]:
    """Returns the finish reason of a request that cannot be served, in SGLang's format."""
    return {**failure(message), "status_code": 400, "err_type": "BadRequestError"}


def failure(message: str) -> dict[str, object]:
    """Returns the finish reason of a request that failed in the engine, in SGLang's format."""
    return {"type": "abort", "message": message, "status_code": 500, "err_type": "InternalServerError"}
