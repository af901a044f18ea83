"""Delivers results from the decode thread to waiting clients: wake-ups, pacing, disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Receive
from tokenizers import Tokenizer

from slime.engines.embedded.engine import Engine
from slime.engines.embedded.sequence import LogProb, Sequence
from slime.engines.embedded.text import IncrementalText, earliest, held_back
from slime.engines.json_http import disconnected, pause_after_chunk
from slime.engines.requests import RunningRequestError

LINGER_SECONDS = 15.0
"""Seconds for which a generation with a join key continues after its connection was lost."""


@dataclass
class _Waiter:
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    gone: bool = False


class Streams:
    """Requests with a client, by request id. Used by the event loop; `notify` is called by the decode thread."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer | None) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._waiters: dict[str, _Waiter] = {}
        self._left: dict[str, Sequence] = {}
        self._names: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> None:
        """Attaches the engine's wake-ups to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._engine.on_progress = self.notify

    def notify(self, sequences: list[Sequence]) -> None:
        if sequences and self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake, [sequence.rid for sequence in sequences])

    def _wake(self, rids: list[str]) -> None:
        for rid in rids:
            waiter = self._waiters.get(rid)
            if waiter is not None:
                waiter.changed.set()

    def rejoin(self, key: str, requested: Sequence) -> Sequence:
        """Returns the generation left by a lost connection if it matches the request, else the request."""
        stream = self._left.pop(key, None)
        if stream is None:
            return requested
        same = (stream.prompt_ids, stream.sampling, stream.adapter) == (
            requested.prompt_ids,
            requested.sampling,
            requested.adapter,
        )
        aborted = stream.finish is not None and stream.finish.get("type") == "abort"
        if not same or aborted or stream.return_logprob < requested.return_logprob:
            self._engine.abort(stream.rid)
            return requested
        self._names[requested.rid] = stream.rid
        return stream

    def running_as(self, rid: str | None) -> str | None:
        """Returns the engine's id of a running request."""
        return self._names.get(rid or "", rid)

    async def run(
        self,
        sequence: Sequence,
        receive: Receive,
        every: bool,
        text_in_logprobs: bool,
        join_key: str | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Submits a sequence and yields its growing answer (`every`), or only the final one.

        Ends without a final answer if the client disconnects; the sequence is then aborted, or kept for
        `rejoin`.

        Raises:
            RunningRequestError: the request id is in use.
        """
        if sequence.rid in self._waiters:
            raise RunningRequestError(f"rid: {sequence.rid!r} is already running")
        waiter = self._waiters[sequence.rid] = _Waiter()
        watcher = asyncio.create_task(_watch(receive, waiter))
        answer = SequenceAnswer(sequence, self._tokenizer, text_in_logprobs)
        try:
            if sequence.rid in self._names.values():
                waiter.changed.set()
            else:
                self._engine.submit(sequence)
            while not waiter.gone:
                await waiter.changed.wait()
                waiter.changed.clear()
                if sequence.finish is None and not (every and answer.has_news):
                    continue
                body, last = answer.snapshot()
                yield body
                if last:
                    join_key = None
                    return
                await asyncio.sleep(pause_after_chunk(len(self._waiters), answer.sent))
        finally:
            watcher.cancel()
            del self._waiters[sequence.rid]
            self._names = {new: old for new, old in self._names.items() if old != sequence.rid}
            if join_key is not None:
                self._leave(join_key, sequence)
            elif sequence.finish is None:
                self._engine.abort(sequence.rid)

    def _leave(self, key: str, sequence: Sequence) -> None:
        """Keeps a generation for `rejoin` for a limited time."""

        def give_up() -> None:
            if self._left.get(key) is sequence:
                del self._left[key]
                self._engine.abort(sequence.rid)

        self._left[key] = sequence
        asyncio.get_running_loop().call_later(LINGER_SECONDS, give_up)

    @property
    def open(self) -> int:
        return len(self._waiters)


async def _watch(receive: Receive, waiter: _Waiter) -> None:
    await disconnected(receive)
    waiter.gone = True
    waiter.changed.set()


class SequenceAnswer:
    """Cumulative snapshots of one sequence. Only reads what the engine thread has published."""

    def __init__(
        self, sequence: Sequence, tokenizer: Tokenizer | None, text_in_logprobs: bool = False
    ) -> None:
        self._sequence = sequence
        self._tokenizer = tokenizer
        self._text_in_logprobs = text_in_logprobs and tokenizer is not None
        self._text = IncrementalText(tokenizer, sequence.sampling.skip_special_tokens) if tokenizer else None
        self._decoded = 0
        self.sent = -1

    @property
    def has_news(self) -> bool:
        return self._sequence.finish is not None or self._sequence.published > max(self.sent, 0)

    def snapshot(self) -> tuple[dict[str, Any], bool]:
        """Returns the answer so far in SGLang's format, and whether it is final."""
        sequence = self._sequence
        count, finish = sequence.published, sequence.finish
        if finish is not None:
            count = len(sequence.output_ids)
        self.sent = count
        meta: dict[str, Any] = {
            "id": sequence.rid,
            "finish_reason": finish,
            "prompt_tokens": len(sequence.prompt_ids),
            "completion_tokens": count,
            "cached_tokens": self._sequence.reused,
            "weight_version": str(sequence.version),
            "total_retractions": sequence.retractions,
        }
        if sequence.return_logprob:
            meta.update(self._log_probs(count))
        if finish is not None:
            meta["weight_versions"] = [
                {"version": str(version), "start": start, "end": end}
                for version, start, end in sequence.spans
            ]
            meta["e2e_latency"] = (sequence.finished_at or sequence.created) - sequence.created
        body = {
            "text": self._visible_text(count, finish),
            "output_ids": sequence.output_ids[:count],
            "meta_info": meta,
        }
        return body, finish is not None

    def _visible_text(self, count: int, finish: dict[str, Any] | None) -> str:
        if self._text is None:
            return ""
        params = self._sequence.sampling
        matched = finish.get("matched") if finish else None
        end = count - 1 if isinstance(matched, int) and not params.no_stop_trim else count
        text = self._text.push(self._sequence.output_ids[self._decoded : end], last=finish is not None)
        self._decoded = max(self._decoded, end)
        if params.stop and finish is None:
            return text[: len(text) - held_back(text, params.stop)]
        if isinstance(matched, str) and not params.no_stop_trim:
            stop = earliest(text, params.stop)
            return text[: stop[0]] if stop else text
        return text

    def _log_probs(self, count: int) -> dict[str, Any]:
        sequence = self._sequence
        fields: dict[str, Any] = {
            "input_logprob_temperature": sequence.input_temperature,
            "input_token_logprobs": self._named(sequence.input.tokens[:]),
            "output_token_logprobs": self._named(sequence.output.tokens[:count]),
        }
        if sequence.top_logprobs:
            fields["input_top_logprobs"] = self._named_lists(sequence.input.top[:])
            fields["output_top_logprobs"] = self._named_lists(sequence.output.top[:count])
        if sequence.chosen_ids:
            fields["input_token_ids_logprobs"] = self._named_lists(sequence.input.chosen[:])
            fields["output_token_ids_logprobs"] = self._named_lists(sequence.output.chosen[:count])
        return fields

    def _named(self, triples: list[LogProb]) -> list[LogProb]:
        if not self._text_in_logprobs or self._tokenizer is None:
            return triples
        return [(value, token, self._tokenizer.decode([token])) for value, token, _ in triples]

    def _named_lists(self, lists: list[list[LogProb] | None]) -> list[list[LogProb] | None]:
        return [None if item is None else self._named(item) for item in lists]
