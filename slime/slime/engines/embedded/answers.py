"""What a client gets back: SGLang's answer, built from a sequence while the engine still works on it."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from slime.engines.embedded.sequence import LogProb, Sequence
from slime.engines.embedded.text import IncrementalText, earliest, held_back


class SequenceAnswer:
    """Cumulative snapshots of one sequence. Reads what the engine thread has published, changes nothing."""

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
        """The answer so far in SGLang's shape, and whether it is the last one."""
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
            "cached_tokens": 0,
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
            found = earliest(text, params.stop)
            return text[: found[0]] if found else text
        return text

    def _log_probs(self, count: int) -> dict[str, Any]:
        sequence = self._sequence
        found: dict[str, Any] = {
            "input_logprob_temperature": sequence.input_temperature,
            "input_token_logprobs": self._named(sequence.input.tokens[:]),
            "output_token_logprobs": self._named(sequence.output.tokens[:count]),
        }
        if sequence.top_logprobs:
            found["input_top_logprobs"] = self._named_lists(sequence.input.top[:])
            found["output_top_logprobs"] = self._named_lists(sequence.output.top[:count])
        if sequence.chosen_ids:
            found["input_token_ids_logprobs"] = self._named_lists(sequence.input.chosen[:])
            found["output_token_ids_logprobs"] = self._named_lists(sequence.output.chosen[:count])
        return found

    def _named(self, triples: list[LogProb]) -> list[LogProb]:
        if not self._text_in_logprobs or self._tokenizer is None:
            return triples
        return [(value, token, self._tokenizer.decode([token])) for value, token, _ in triples]

    def _named_lists(self, lists: list[list[LogProb] | None]) -> list[list[LogProb] | None]:
        return [None if item is None else self._named(item) for item in lists]
