"""Reads the answers of a stream, whether each repeats everything that came before or not.

Where they do, the repeated part is compared as bytes, which is cheap, and not parsed again. An answer that does not
continue the last one, or has another layout, is parsed as a whole. Where an engine sends what is new alone (SGLang's
`--incremental-streaming-output`), an answer carries fewer ids than it counts (`completion_tokens`), and so tells how many
came before it; of several that came together none may be left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

READ_WHOLE_BYTES = 8 << 10
"""Shorter answers are parsed as they are."""
SKIPPED = "skipped"
"""Field of an answer: how many ids and log-probs at the beginning of its lists were left out."""
_KEYS = (b'"output_ids":', b'"output_token_logprobs":')
_ENDS = (b"]", b"]]")
_WHOLE_ONLY = b'"output_top_logprobs":'
LISTS = ("output_token_logprobs", "output_top_logprobs")
"""Fields of `meta_info` with an entry for each id."""


class CumulativeAnswers:
    """Reads the answers of one stream, in order."""

    def __init__(self) -> None:
        self._lists: list[_List] = []

    def read(self, data: bytes) -> dict[str, Any]:
        """The answer, its lists without what was read before (see SKIPPED). Raises JSONDecodeError, AttributeError for
        what is no JSON object."""
        if len(data) < READ_WHOLE_BYTES or _WHOLE_ONLY in data:
            self._lists = []
            return {**orjson.loads(data), SKIPPED: 0}
        answer = self._rest(data)
        if answer is None:
            answer = {**orjson.loads(data), SKIPPED: 0}
            self._lists = _lists(data, answer)
        return answer

    def _rest(self, data: bytes) -> dict[str, Any] | None:
        """The answer if it continues the last one."""
        if not self._lists:
            return None
        kept, at, tails = [], 0, []
        skipped = self._lists[0].count
        for known in self._lists:
            found = known.grown(data, at)
            if found is None:
                return None
            start, end, tail = found
            kept += [data[at:start], b"[]"]
            at = end
            tails.append(tail)
        try:
            answer = orjson.loads(b"".join([*kept, data[at:]]))
            lists = [orjson.loads(tail) for tail in tails]
        except orjson.JSONDecodeError:
            return None
        if len({len(one) for one in lists}) != 1 or not isinstance(answer.get("meta_info"), dict):
            return None
        answer["output_ids"] = lists[0]
        if len(lists) > 1:
            answer["meta_info"]["output_token_logprobs"] = lists[1]
        for known in self._lists:
            known.count += len(lists[0])
        return {**answer, SKIPPED: skipped}


class _List:
    """One of the growing lists. `text` is all of it but the closing bracket, `count` how many entries it has."""

    def __init__(self, key: bytes, end: bytes, text: bytes, count: int) -> None:
        self._key = key
        self._end = end
        self._text = text
        self.count = count

    def grown(self, data: bytes, at: int) -> tuple[int, int, bytes] | None:
        """(start, end, JSON list of what is new) of this list in a later answer, behind `at`; None if it is no longer
        the same list."""
        start = _begin(data, self._key, at)
        behind = start + len(self._text)
        if start < 0 or not data.startswith(self._text, start):
            return None
        following = data[behind : behind + 1]
        if following == b"]":
            return start, behind + 1, b"[]"
        end = data.find(self._end, behind)
        if following != b"," or end < 0:
            return None
        last = end + len(self._end) - 1
        self._text = data[start:last]
        return start, last + 1, b"[" + data[behind + 1 : last + 1]


def _begin(data: bytes, key: bytes, at: int) -> int:
    """Where the list of this key begins; -1 if there is none. Inside a JSON text the key cannot occur: its quotes would
    have backslashes."""
    found = data.find(key, at)
    if found < 0:
        return -1
    start = found + len(key)
    while data[start : start + 1] == b" ":
        start += 1
    return start if data[start : start + 1] == b"[" else -1


def _lists(data: bytes, answer: dict[str, Any]) -> list[_List]:
    """The lists of an answer that was read as a whole; [] where their places cannot be told."""
    ids, meta = answer.get("output_ids"), answer.get("meta_info")
    if not isinstance(ids, list) or not isinstance(meta, dict):
        return []
    found: list[_List] = []
    at = 0
    values = [ids, *([meta["output_token_logprobs"]] if meta.get("output_token_logprobs") else [])]
    for key, end, value in zip(_KEYS, _ENDS, values, strict=False):
        start = _begin(data, key, at)
        at = data.find(end, start) + len(end)
        try:
            same = start >= 0 and orjson.loads(data[start:at]) == value
        except orjson.JSONDecodeError:
            same = False
        if not same or len(value) != len(ids):
            return []
        found.append(_List(key, end, data[start : at - 1], len(value)))
    return found


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
