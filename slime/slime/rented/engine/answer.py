"""The response to a client, in SGLang's format, with the weight version of each token."""

from __future__ import annotations

import time
from typing import Any

from slime.engines.requests import GenerateRequest
from slime.rented.engine.model_folder import ModelFolder
from slime.rented.service import Sampled


class RentedAnswer:
    """The response to one request; `snapshot` is cumulative.

    Args:
        version: weight version that answers; later calls of `add` may have another one.

    Attributes:
        prompt_log_probs: [N - 1] of the prompt's ids except the first, if requested.
    """

    def __init__(self, rid: str, request: GenerateRequest, prompt: list[int], version: int) -> None:
        self.rid, self.version = rid, version
        self._ends: dict[int, int] = {}
        self.prompt_log_probs: list[float] = []
        self.ids: list[int] = []
        self.finish: dict[str, Any] | None = None
        self._request, self._prompt = request, prompt
        self._log_probs: list[float] = []
        self._began = time.perf_counter()

    def add(self, sampled: Sampled, most: int, folder: ModelFolder, version: int) -> None:
        """Appends sampled tokens, up to the one that completes a stop string; `most`: token limit of the whole
        answer."""
        self._append(sampled, most, folder)
        self.version, self._ends[version] = version, len(self.ids)

    def _append(self, sampled: Sampled, most: int, folder: ModelFolder) -> None:
        stops = self._request.sampling_params.stop
        if stops and (stopped := self._stopped(sampled, stops, folder)) is not None:
            count, word = stopped
            self.ids += sampled.ids[:count]
            self._log_probs += sampled.log_probs[:count]
            self.finish = {"type": "stop", "matched": word}
            return
        self.ids += sampled.ids
        self._log_probs += sampled.log_probs
        if sampled.ended:
            self.finish = {"type": "stop", "matched": self.ids[-1] if self.ids else None}
        elif len(self.ids) >= most or not sampled.ids:
            self.finish = {"type": "length", "length": len(self.ids)}

    def _stopped(self, sampled: Sampled, stops: list[str], folder: ModelFolder) -> tuple[int, str] | None:
        """Returns the number of new tokens up to a stop string, and the string; None if there is none."""
        skip = self._request.sampling_params.skip_special_tokens
        if not any(word in folder.text(self.ids + sampled.ids, skip) for word in stops):
            return None
        for count in range(1, len(sampled.ids) + 1):
            text = folder.text(self.ids + sampled.ids[:count], skip)
            for word in stops:
                if word in text:
                    return count, word
        return None

    def snapshot(self, text: str) -> dict[str, Any]:
        """Returns the answer so far, in SGLang's format."""
        meta: dict[str, Any] = {
            "id": self.rid,
            "finish_reason": self.finish,
            "prompt_tokens": len(self._prompt),
            "completion_tokens": len(self.ids),
            "cached_tokens": 0,
            "weight_version": str(self.version),
        }
        if self._request.return_logprob:
            meta["input_logprob_temperature"] = meta["output_logprob_temperature"] = 1.0
            meta["output_token_logprobs"] = [
                (value, token, None) for value, token in zip(self._log_probs, self.ids, strict=True)
            ]
            meta["input_token_logprobs"] = self._input()
        if self.finish is not None:
            meta["weight_versions"] = self._spans()
            meta["e2e_latency"] = time.perf_counter() - self._began
        return {"text": text, "output_ids": list(self.ids), "meta_info": meta}

    def _spans(self) -> list[dict[str, Any]]:
        starts = [0, *self._ends.values()]
        spans = zip(self._ends, starts, self._ends.values(), strict=False)
        return [{"version": str(version), "start": a, "end": b} for version, a, b in spans if a < b]

    def _input(self) -> list[tuple[float | None, int, None]]:
        start = self._request.logprob_start_len
        if start < 0:
            return []
        values = [None, *self.prompt_log_probs]
        return [
            (value if place else None, token, None)
            for place, (value, token) in enumerate(zip(values[start:], self._prompt[start:], strict=True))
        ]
