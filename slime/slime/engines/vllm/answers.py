"""Builds responses in SGLang's format from vLLM's outputs for one request."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from slime.engines.requests import GenerateRequest

Entry = tuple[float | None, int, str | None]
"""SGLang's JSON triple: (log-prob or null, token id, text or null)."""
Row = list[tuple[float, int]]
"""(log-prob, id) of a position's token, then of the top or requested tokens."""


@dataclass(frozen=True)
class Delta:
    """New part of an answer.

    Attributes:
        rows: log-probs of the new tokens.
        prompt_rows: log-probs of the prompt tokens, sent once; the first has none.
        finish: vLLM's reason and the matched stop; None while it continues.
        spans: version spans of all tokens, with the last delta.
    """

    ids: list[int]
    text: str = ""
    rows: list[Row] = field(default_factory=list)
    prompt_rows: list[Row] | None = None
    finish: tuple[str, int | str | None] | None = None
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    cached: int = 0


def rows_of(flat: Any) -> list[Row]:
    """Returns vLLM's FlatLogprobs as one row per position."""
    return [
        list(zip(flat.logprobs[start:end], flat.token_ids[start:end], strict=True))
        for start, end in zip(flat.start_indices, flat.end_indices, strict=True)
    ]


class HostedAnswer:
    """The response to one request; `snapshot` is cumulative.

    Args:
        most_tokens: number of requested tokens. vLLM samples one if that is 0, which is omitted.
        version: returns the live weight version, called when tokens arrive.
        name: returns the text of an id, for `return_text_in_logprobs`.
    """

    def __init__(
        self, rid: str, request: GenerateRequest, prompt: list[int], most_tokens: int,
        version: Callable[[], int], name: Callable[[int], str],
    ) -> None:  # fmt: skip
        self.rid, self._request, self._prompt, self._max_tokens = rid, request, prompt, most_tokens
        self._version, self._name = version, name
        self.changed = asyncio.Event()
        self.finish: dict[str, Any] | None = None
        self._ids: list[int] = []
        self._text = ""
        self._rows: list[Row] = []
        self._prompt_rows: list[Row] = []
        self._spans: list[tuple[str, int, int]] = []
        self._cached = 0
        self._live = version()
        self._created = time.perf_counter()

    @property
    def count(self) -> int:
        return len(self._ids)

    @property
    def failure(self) -> dict[str, Any] | None:
        """Returns the finish reason of a rejected or failed request."""
        return self.finish if self.finish is not None and "status_code" in self.finish else None

    def add(self, delta: Delta) -> None:
        # repeated if a weight update made vLLM prefill the prompt again
        if delta.prompt_rows and not self._prompt_rows:
            self._prompt_rows = delta.prompt_rows
        if delta.ids:
            self._live = self._version()
        if self._max_tokens:
            self._ids += delta.ids
            self._rows += delta.rows
            self._text += delta.text
        self._cached = max(self._cached, delta.cached)
        if delta.finish is not None:
            self._spans = delta.spans if self._max_tokens else []
            self.finish = self._finish(*delta.finish)
        self.changed.set()

    def fail(self, message: str, status: int) -> None:
        """Ends the request with a failure in SGLang's format."""
        self.finish = {"type": "abort", "message": message, "status_code": status}
        self.changed.set()

    def _finish(self, reason: str, matched: int | str | None) -> dict[str, Any]:
        if reason == "abort":
            return {"type": "abort", "message": "aborted by request"}
        if not self._max_tokens or reason == "length":
            return {"type": "length", "length": len(self._ids)}
        if reason == "stop":
            return {"type": "stop", "matched": self._ids[-1] if matched is None else matched}
        return {"type": "abort", "message": f"vLLM ended the request: {reason}", "status_code": 500}

    def snapshot(self) -> dict[str, Any]:
        """Returns the answer so far, in SGLang's format."""
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": len(self._prompt),
            "completion_tokens": len(self._ids),
            "cached_tokens": self._cached,
            "weight_version": str(self._live),
        }
        if self._request.return_logprob:
            meta |= self._log_probs()
        if self.finish is not None:
            meta["weight_versions"] = [
                {"version": v, "start": start, "end": end} for v, start, end in self._spans
            ]
            meta["e2e_latency"] = time.perf_counter() - self._created
        return {"text": self._text, "output_ids": list(self._ids), "meta_info": meta}

    def _log_probs(self) -> dict[str, Any]:
        request, start = self._request, self._request.logprob_start_len
        prompt = self._prompt_rows[start:] if start >= 0 else []
        fields: dict[str, Any] = {
            "input_logprob_temperature": 1.0,
            "input_token_logprobs": [
                self._entry(row[0]) if place else self._entry((None, self._prompt[start]))
                for place, row in enumerate(prompt)
            ],
            "output_token_logprobs": [self._entry(row[0]) for row in self._rows],
        }
        if request.top_logprobs_num:
            fields["input_top_logprobs"] = [
                self._best(row) if place else None for place, row in enumerate(prompt)
            ]
            fields["output_top_logprobs"] = [self._best(row) for row in self._rows]
        if request.token_ids_logprob:
            fields["input_token_ids_logprobs"] = []
            fields["output_token_ids_logprobs"] = [
                [self._entry(pair) for pair in row[1:]] for row in self._rows
            ]
        return fields

    def _best(self, row: Row) -> list[Entry]:
        return [self._entry(pair) for pair in row[1 : self._request.top_logprobs_num + 1]]

    def _entry(self, pair: tuple[float | None, int]) -> Entry:
        value, token = pair
        known = value is not None and math.isfinite(value)  # JSON cannot represent infinity
        return (
            value if known else None,
            token,
            self._name(token) if self._request.return_text_in_logprobs else None,
        )
