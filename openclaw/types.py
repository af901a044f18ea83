"""The records of the runtime: turns, judgements, samples and weight versions.

These records cross every boundary of the runtime (gateway, store, judge, rollout). They are frozen; the
store is the only place where a state changes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

Json = Any
Message = dict[str, Json]
VersionSpan = tuple[int, int, int]
"""(weight version, start, end): half-open, in positions of the completion."""

Source = Literal["gateway", "import", "environment"]
"""The source of a turn: people and their agents, an imported file, or an environment that rewards the turn itself."""

ENVIRONMENT: Source = "environment"

USER_JUDGE = "user"
"""`judge` of a judgement made by a person."""

GREEDY = "greedy"
UNSAMPLED = "unsampled"
"""Key of a sample's metadata: the reason why its turn is not a sample of the policy."""
COLDEST = 1e-6
"""Temperatures below it are greedy."""
_PENALTIES = {"frequency_penalty", "presence_penalty", "repetition_penalty"}

RenderMode = Literal["full", "bridge"]
"""A prompt rendered from all messages, or consisting of the parent turn's ids and new ones."""

ADAPTER_MARK = "::"
"""Separator in a policy's id, before the name of the adapter that answered."""
OF_ADAPTER = "adapter"
"""Reason why an adapter's turn cannot be trained on: no trainer has that adapter as its policy."""
FROZEN_BASE = "frozen_base"
"""Reason why the base model's turn cannot be trained on: the run trains only adapters."""

DEFAULT_TRAINER = "trainer"
"""Name of the only trainer of a store. Two trainers on one store need two names."""


class TurnState(StrEnum):
    """captured -> answered -> judged; the others are final states.

    A person's feedback can return an expired or judged turn to answered.
    """

    CAPTURED = "captured"
    """Complete and trainable, without a next state yet."""
    ANSWERED = "answered"
    """It has a next state; a judge may claim it."""
    JUDGED = "judged"
    """Judgement and sample (or counted drop) are stored."""
    SIDE = "side"
    """Served, never trained."""
    ABORTED = "aborted"
    """The client disconnected, or the engine gave up; the answer is partial."""
    UNTRAINABLE = "untrainable"
    """Complete, but cannot be trained on; `state_reason` has the reason."""
    EXPIRED = "expired"
    """Its session ended before it got a next state."""
    IMPORTED = "imported"
    """From a conversation file, without a next state."""


class SampleState(StrEnum):
    """ready -> leased -> trained, or dropped with a reason; quarantined when its update was rejected or undone."""

    READY = "ready"
    LEASED = "leased"
    TRAINED = "trained"
    DROPPED = "dropped"
    QUARANTINED = "quarantined"


class VersionStatus(StrEnum):
    """At most one version of a trainer is live; superseded ones are its ancestors."""

    CANDIDATE = "candidate"
    LIVE = "live"
    SUPERSEDED = "superseded"
    REJECTED = "rejected"
    ROLLED_BACK = "rolled_back"


def policy_of(policy_id: str, adapter: str | None) -> str:
    """Returns the id of the policy that answers: the base model, or an adapter of it. Trainers are named in the same
    way."""
    return policy_id if adapter is None else f"{policy_id}{ADAPTER_MARK}{adapter}"


def adapter_of(name: str) -> str | None:
    """Returns the adapter in the id of a policy, or in the name of the trainer that trains it; None: the base model."""
    before, mark, adapter = name.rpartition(ADAPTER_MARK)
    return adapter if mark and before else None


def unsampled(sampling: Mapping[str, Json]) -> str | None:
    """Returns why an answer with these settings cannot be trained by its score: its tokens come from another
    distribution than the policy's. Returns None if they are samples. Hints are not affected: the teacher has a
    distribution for each token."""
    if sampling["temperature"] < COLDEST:
        return GREEDY
    if "json_schema" in sampling:
        return "grammar"
    if "logit_bias" in sampling:
        return "logit_bias"
    return "penalties" if _PENALTIES & sampling.keys() else None


@dataclass(frozen=True)
class PlacedPicture:
    """A picture in a prompt: tokens [start, start + length), `rows` and `columns` of patches; `sha256` of its bytes, in
    hexadecimal."""

    start: int
    length: int
    rows: int
    columns: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class TurnContext:
    """A turn before its first token: the request, its session and its prompt.

    `sampling`: in SGLang's names. Times are Unix seconds.
    """

    completion_id: str
    session_id: str
    messages: list[Message]
    prompt_ids: list[int]
    sampling: dict[str, Json]
    policy_id: str = "policy"
    person: str | None = None
    key_name: str | None = None
    """Name of the client's key, "" for a request without a named key; None: not known."""
    parent_id: str | None = None
    turn_index: int | None = None
    """None: the store assigns the session's next index."""
    turn_type: Literal["main", "side"] = "main"
    tools: list[dict[str, Json]] | None = None
    render_mode: RenderMode = "full"
    tokenizer_fingerprint: str = ""
    template_fingerprint: str = ""
    source: Source = "gateway"
    group_id: str | None = None
    """Id shared by turns whose rewards are compared: the attempts at one task."""
    task_id: str | None = None
    memory: list[str] | None = None
    """Remembered preferences of the person in the prompt, in addition to `messages`, oldest first; None: memory is
    off for the turn, and its hints are not remembered."""
    pictures: list[PlacedPicture] = field(default_factory=list)
    """Those in the prompt, in order."""
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    created_at: float = field(default_factory=time.time)

    @property
    def unsampled(self) -> str | None:
        """Returns why this turn cannot be trained by its score (greedy, grammar, logit_bias, penalties); None if it
        can."""
        return unsampled(self.sampling)

    @property
    def is_of_adapter(self) -> bool:
        """Returns whether an adapter answered, not the trained policy."""
        return ADAPTER_MARK in self.policy_id

    @property
    def temperature(self) -> float:
        """Returns the temperature for log-probs of a trainer or teacher: 1 for greedy answers."""
        return 1.0 if self.unsampled == GREEDY else float(self.sampling["temperature"])


@dataclass(frozen=True, kw_only=True)
class NewTurn(TurnContext):
    """One finished request and its answer, passed from the gateway to the store.

    `state` is one of captured, side, aborted, untrainable or imported; untrainable needs a `state_reason`.
    `completion_log_probs` (natural log, one per completion token) are from the distribution at the sampling
    temperature before truncation; None if no engine returned any (an imported turn), so that the trainer computes
    them. `version_spans` cover the completion without gaps.
    """

    response_message: Message
    completion_ids: list[int]
    completion_log_probs: list[float] | None
    version_spans: list[VersionSpan]
    finish_reason: str
    transcript_digest: str
    state: TurnState = TurnState.CAPTURED
    state_reason: str | None = None


@dataclass(frozen=True, kw_only=True)
class Turn(NewTurn):
    """A stored turn: `turn_index` is always set."""

    next_state: list[Message] | None = None
    """The messages after the answer (tool results, user text); None until the turn is answered."""
    answered_at: float | None = None
    judged_at: float | None = None
    judge_attempts: int = 0
    """Number of times that a judge has claimed this turn, the present claim included."""


@dataclass(frozen=True, kw_only=True)
class Session:
    """A conversation. `turns` counts its stored turns; `ended_at` is None while it is open."""

    id: str
    person: str | None
    turns: int
    created_at: float
    last_seen: float
    ended_at: float | None
    key_name: str | None = None
    """Name of the key that began it, as in a turn."""


@dataclass(frozen=True, kw_only=True)
class Vote:
    """One judge vote. `score` is 1, -1, 0 or None (no valid reply); `text` is the reason in the judge's
    words."""

    score: int | None
    text: str = ""
    hint: str | None = None


REASON_CHARACTERS = 160
"""Most characters of a judge's reason that are shown without a click."""


def reason_of(score: float, votes: Sequence[Vote]) -> str:
    """Returns the reason of a judgement's score, in one line: the text of the first vote with the same sign; "" if
    none has a text."""
    sign = (score > 0) - (score < 0)
    text = next((vote.text for vote in votes if vote.score == sign and vote.text.strip()), "")
    line = " ".join(text.split())
    return line if len(line) <= REASON_CHARACTERS else f"{line[: REASON_CHARACTERS - 1].rstrip()}…"


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The result of judging one turn. `latency` in seconds; `prompt` names the prompt by file and hash."""

    kind: Literal["eval", "hint"]
    score: float
    votes: list[Vote]
    judge: str
    prompt: str = ""
    hints: list[str] = field(default_factory=list)
    latency: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Feedback:
    """The effect of a person's feedback on a turn.

    status: `judging` (the turn is judged with it at once), `waiting` (used once the turn has a next state) or
    `recorded` (stored without effect: the last feedback was the same, or the turn is being trained, was trained, or
    never will be).
    """

    turn_id: str
    completion_id: str
    session_id: str
    status: Literal["judging", "waiting", "recorded"]


@dataclass(frozen=True, kw_only=True)
class TeacherSide:
    """Inputs and outputs of a teacher, which sees the hints, for the R completion tokens of a turn.

    teacher_tokens_candidates: for each accepted hint, shortest first, the ids of the hinted prompt and the turn's own
        completion ids; [] if there is no hint (the teacher sees the plain prompt); None if no teacher is asked.
    teacher_log_probs: [R], from an inference engine at the turn's sampling temperature.
    teacher_topk_log_probs, teacher_topk_indices: [R][K], the teacher's K best tokens, log-probs as above.
    """

    teacher_tokens_candidates: list[list[int]] | None = None
    teacher_log_probs: list[float] | None = None
    teacher_topk_log_probs: list[list[float]] | None = None
    teacher_topk_indices: list[list[int]] | None = None

    def teacher_fields(self) -> dict[str, Json]:
        """Returns the fields of this part that have a value, by name."""
        known = {item.name: getattr(self, item.name) for item in fields(TeacherSide)}
        return {name: value for name, value in known.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class SampleDraft(TeacherSide):
    """A sample that a method creates from a turn. `loss_mask` [completion tokens] of 0/1; None trains every token."""

    turn_id: str
    reward: float | dict[str, float]
    loss_mask: list[int] | None = None
    metadata: dict[str, Json] = field(default_factory=dict)


@dataclass(frozen=True)
class Drop:
    """A method's decision not to train on a turn; `reason` (snake_case) is counted."""

    reason: str


@dataclass(frozen=True, kw_only=True)
class SampleRecord(TeacherSide):
    """A stored sample with the turn it trains. `rollout_id` and `trainer` name its lease, if it has one; `pictures`: data
    URLs of those in the turn's prompt, by the SHA-256 of their bytes."""

    id: int
    turn: Turn
    reward: float | dict[str, float]
    loss_mask: list[int] | None
    metadata: dict[str, Json]
    state: SampleState
    reason: str | None
    created_at: float
    trainer: str | None
    rollout_id: int | None
    trained_version: int | None
    pictures: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WeightVersion:
    """A version of a trainer's weights. `parent`: the version it was trained from (None: unknown)."""

    trainer: str
    version: int
    parent: int | None
    rollout_id: int
    status: VersionStatus
    path: str | None
    checksum: str | None
    created_at: float
    activated_at: float | None
    details: dict[str, Json] = field(default_factory=dict)
    """Measurements of the gate; the reason of a rejection or rollback."""
