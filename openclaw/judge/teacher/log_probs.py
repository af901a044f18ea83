"""The teacher on an inference engine: log-probs of the answer's ids after the hinted prompt.

SGLang returns no log-prob for the first requested position, so the request starts one id before the answer. The
distribution is the student's: logits divided by the turn's sampling temperature. A failed teacher returns nothing; a
missing log-prob is never replaced by a number.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Literal

from openclaw.errors import ConfigError, JudgeError
from openclaw.formats.tokenizer import Tokenizer
from openclaw.judge.backends.http import JudgeHttp
from openclaw.judge.metrics import JudgeMetrics
from openclaw.judge.settings import JudgeSettings
from openclaw.judge.teacher.settings import TeacherSettings, teacher_engines
from openclaw.types import SampleDraft, Turn


class TeacherError(JudgeError):
    """The teacher's response cannot be used."""


class Teacher:
    """Adds the teacher's log-probs to samples.

    Args:
        http: client of `/generate` of equivalent engines.
        kind: `token` for [R], `topk` for the `top_k` best ids of every position too.
    """

    def __init__(self, http: JudgeHttp, kind: Literal["token", "topk"], top_k: int = 0) -> None:
        self._http = http
        self._top_k = {"token": 0, "topk": top_k}[kind]

    async def close(self) -> None:
        await self._http.close()

    async def taught(self, turn: Turn, draft: SampleDraft) -> SampleDraft:
        """Returns the draft with the teacher's log-probs in place of the ids that they are requested for. The first
        candidate is the teacher. If a turn has no hint, `topk` asks the model with the plain prompt (with the hybrid
        method, that keeps the policy near its start), and `token` makes no request.

        Raises:
            TeacherError: the response does not match the turn, or lacks a number.
            JudgeError: as `JudgeHttp.post`.
        """
        candidates = draft.teacher_tokens_candidates
        if not candidates and (candidates is None or not self._top_k):
            return dataclasses.replace(draft, teacher_tokens_candidates=None)
        ids = candidates[0] if candidates else turn.prompt_ids + turn.completion_ids
        temperature = turn.temperature
        start = len(ids) - len(turn.completion_ids) - 1
        meta = (await self._http.post(self._body(ids, start, temperature))).get("meta_info")
        if not isinstance(meta, dict):
            raise TeacherError("the teacher's answer has no meta_info")
        if temperature != 1.0 and meta.get("input_logprob_temperature") != temperature:
            raise TeacherError(
                f"the teacher's engine computes no log-probs of a prompt at temperature {temperature}; sample the policy "
                "at temperature 1, or use --teacher-source trainer"
            )
        scored = _rows(meta, "input_token_logprobs", len(turn.completion_ids))
        log_probs = [
            _number(entry, token_id) for entry, token_id in zip(scored, turn.completion_ids, strict=True)
        ]
        fields: dict[str, Any] = {"teacher_tokens_candidates": None, "teacher_log_probs": log_probs}
        if self._top_k:
            best = [_best(row, self._top_k) for row in _rows(meta, "input_top_logprobs", len(log_probs))]
            fields["teacher_topk_log_probs"] = [[value for value, _ in row] for row in best]
            fields["teacher_topk_indices"] = [[token for _, token in row] for row in best]
        return dataclasses.replace(draft, **fields)

    def _body(self, ids: list[int], start: int, temperature: float) -> dict[str, Any]:
        body: dict[str, Any] = {
            "input_ids": ids,
            "sampling_params": {"temperature": 0.0, "max_new_tokens": 0},
            "return_logprob": True,
            "logprob_start_len": start,
            "top_logprobs_num": self._top_k,
        }
        return body if temperature == 1.0 else body | {"input_logprob_temperature": temperature}


def make_teacher(
    teacher: TeacherSettings, judge: JudgeSettings, policy: Tokenizer, kind: Literal["token", "topk"],
    top_k: int, metrics: JudgeMetrics,
) -> Teacher:  # fmt: skip
    """Returns the configured teacher. Must be called in a running event loop.

    Raises:
        ConfigError: no engine is configured, the vocabulary differs from the policy's, or K is too large.
    """
    urls, folder = teacher_engines(teacher, judge)
    if not policy.same_vocabulary(Tokenizer(folder)):
        raise ConfigError(
            f"the teacher {folder} has a different vocabulary from the policy: their log-probs cannot be compared"
        )
    if kind == "topk" and not 1 <= top_k <= policy.vocabulary_size:
        raise ConfigError(
            f"--distill-topk is {top_k}; it must be from 1 to the vocabulary's {policy.vocabulary_size}"
        )
    http = JudgeHttp(
        [f"{url.rstrip('/')}/generate" for url in urls],
        judge.judge_request_timeout,
        judge.judge_retries,
        judge.judge_retry_budget,
        teacher.opd_teacher_lp_max_concurrency,
        metrics,
    )
    return Teacher(http, kind, top_k)


def _rows(meta: dict[str, Any], name: str, length: int) -> list[Any]:
    """Returns the last `length` entries, one a response token; the engine's first entry has no log-prob."""
    rows = meta.get(name)
    if not isinstance(rows, list) or len(rows) != length + 1:
        raise TeacherError(
            f"the teacher's {name} has {len(rows or [])} positions; {length + 1} were expected"
        )
    return rows[1:]


def _number(entry: object, token_id: int) -> float:
    value, token = _pair(entry)
    if token != token_id:
        raise TeacherError(
            f"the teacher returned the log-prob of id {token} at a position where the answer has {token_id}"
        )
    return value


def _best(row: object, top_k: int) -> list[tuple[float, int]]:
    pairs = [_pair(entry) for entry in row] if isinstance(row, list) else []
    if len(pairs) != top_k or len({token for _, token in pairs}) != top_k:
        raise TeacherError(
            f"the teacher returned {len(pairs)} likeliest ids at a position, not {top_k} different ones"
        )
    return pairs


def _pair(entry: Any) -> tuple[float, int]:
    """Returns (log-prob, id) from SGLang's triple."""
    try:
        value, token = entry[0], entry[1]
    except (TypeError, IndexError, KeyError) as error:
        raise TeacherError("the teacher's log-probs are not (log-prob, id) entries") from error
    if not isinstance(value, int | float) or not math.isfinite(value) or not isinstance(token, int):
        raise TeacherError(f"the teacher returned {value!r} as the log-prob of id {token!r}")
    return float(value), token
