"""Answers of engines that send what is new alone (SGLang's `--incremental-streaming-output`).

Such an answer carries fewer ids than it counts (`completion_tokens`), and so tells by itself how many came before it.
Of several that came together none may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from openclaw.engine.cumulative_stream import SKIPPED, CumulativeAnswers

LISTS = ("output_token_logprobs", "output_top_logprobs")
"""Fields of `meta_info` with an entry for each id."""


class StreamedAnswers:
    """Reads the answers of one stream, in order, whether each repeats what came before or not."""

    def __init__(self) -> None:
        self._cumulative = CumulativeAnswers()
        self._incremental = False

    def read(self, events: Sequence[bytes]) -> dict[str, Any]:
        """What the answers that came together say, its lists without what was left out before them (see SKIPPED).

        Raises:
            JSONDecodeError, AttributeError, KeyError, TypeError: an answer that is none.
        """
        if not self._incremental:
            answer = self._cumulative.read(events[-1])
            if not _lacks_ids(answer):
                return answer
            self._incremental = True
        return _joined([orjson.loads(event) for event in events])


def _lacks_ids(answer: dict[str, Any]) -> bool:
    """Whether an answer counts more ids than it and those before it in the stream's lists have."""
    ids, meta = answer.get("output_ids"), answer.get("meta_info")
    count = meta.get("completion_tokens") if isinstance(meta, dict) else None
    return isinstance(ids, list) and isinstance(count, int) and count > answer[SKIPPED] + len(ids)


def _joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """Increments that follow one another as one: everything but the lists is the last one's."""
    last = parts[-1]
    if "error" in last:
        return {**last, SKIPPED: 0}
    ids = [token for part in parts for token in part["output_ids"]]
    meta = dict(last["meta_info"])
    for name in LISTS:
        if name in meta:
            meta[name] = [entry for part in parts for entry in part["meta_info"][name]]
    return {**last, "output_ids": ids, "meta_info": meta, SKIPPED: meta["completion_tokens"] - len(ids)}
