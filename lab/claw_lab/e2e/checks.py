"""Checks all messages that were sent, sampled and stored in one run, and measures the gateway's time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from claw_lab.e2e.relay import Passage
from claw_lab.e2e.scenario import CRON_TEXT, Conversation, mismatches
from claw_lab.e2e.serving import EngineCall
from openclaw.common.messages import text_of
from openclaw.types import Turn, TurnState

CONNECT_TEST = "openclaw-connect-test"
SIDE_KINDS = ("compaction", "heartbeat", "cron")


def conversation_problems(talks: Sequence[Conversation], turns: Sequence[Turn]) -> list[str]:
    """Returns problems: every main turn must be in its session, with its text and its next state, and every person
    must get the stored answer."""
    left = [turn for turn in turns if turn.turn_type == "main"]
    problems = [line for talk in talks for line in talk.wrong_replies]
    # A session that was reset continues under its id: its conversations share the id in order
    for talk in talks:
        own = [turn for turn in left if turn.session_id == talk.session_id]
        later = sum(other.session_id == talk.session_id for other in talks[talks.index(talk) + 1 :])
        own = own[: len(talk.calls)] if later else own
        left = [turn for turn in left if turn not in own]
        problems += mismatches(talk, own)
    for turn in left:
        answer = str(turn.response_message)[:80]
        problems.append(f"main turn of an unknown session {turn.session_id}: {answer}")
    slow = [turn for turn in turns if str(turn.response_message.get("content")).startswith("SLOW")]
    if not slow or not all(len(turn.version_spans) >= 2 for turn in slow):
        problems.append("a slow answer was written by one version only: no update fell into it")
    return problems


def side_problems(counts: dict[str, int]) -> list[str]:
    """Returns problems: each kind of housekeeping turn must occur, and no other turn may be classified as one."""
    problems = [f"no {kind} among the side turns" for kind in SIDE_KINDS if not counts.get(kind)]
    if counts.get("other"):
        problems.append(f"{counts['other']} side turns are none of {', '.join(SIDE_KINDS)}")
    return problems


def side_counts(turns: Sequence[Turn]) -> dict[str, int]:
    """Returns side turns by kind, identified by their texts; the connection test is not counted."""
    counts: dict[str, int] = {}
    for turn in turns:
        if turn.turn_type == "side" and turn.session_id != CONNECT_TEST:
            kind = side_kind(turn)
            counts[kind] = counts.get(kind, 0) + 1
    return counts


def side_kind(turn: Turn) -> str:
    system = " ".join(text_of(one) for one in turn.messages if one["role"] == "system")
    text = " ".join(text_of(one) for one in turn.messages if one["role"] == "user")
    if "context summarization" in system:
        return "compaction"
    if CRON_TEXT in text:
        return "cron"
    return "heartbeat" if "heartbeat" in text.lower() else "other"


def storage_problems(turns: Sequence[Turn], calls: Sequence[EngineCall]) -> list[str]:
    """Returns problems: every engine call must be stored once, with its exact ids and the weight versions of its
    tokens."""
    stored = {turn.completion_id: turn for turn in turns}
    problems = []
    for call in calls:
        turn = stored.pop(call.completion_id, None)
        if turn is None:
            problems.append(f"{call.completion_id} was sampled and is not stored")
        elif turn.completion_ids != call.ids:
            problems.append(f"{call.completion_id}: the stored ids are not the sampled ones")
        elif len(turn.completion_log_probs or []) != len(call.ids):
            problems.append(f"{call.completion_id}: ids and log-probs differ in number")
        elif [tuple(span) for span in turn.version_spans] != call.spans:
            problems.append(
                f"{call.completion_id}: stored as written by {turn.version_spans}, not {call.spans}"
            )
    return problems + [f"{name} is stored and was never sampled" for name in stored]


def refused(passages: Sequence[Passage]) -> list[str]:
    """Returns the requests of OpenClaw that failed, including those that it repeats by itself."""
    return [
        f"a request of OpenClaw got HTTP {one.status or 'nothing'}" for one in passages if one.status != 200
    ]


def gateway_seconds(passages: Sequence[Passage], calls: Sequence[EngineCall]) -> list[float]:
    """Returns for each model call the seconds that OpenClaw waited, from its first byte to the last of the answer,
    without the engine's time."""
    sampling = {call.completion_id: call.ended - call.began for call in calls}
    return [
        passage.ended - passage.began - sampling[passage.completion_id]
        for passage in passages
        if passage.completion_id in sampling
    ]


def timing(added: Sequence[float]) -> dict[str, Any]:
    """Returns median and percentiles in milliseconds."""
    if len(added) < 2:
        return {"gateway_ms_p50": None, "gateway_ms_p90": None, "gateway_ms_max": None}
    return {
        "gateway_ms_p50": round(1e3 * statistics.median(added), 1),
        "gateway_ms_p90": round(1e3 * statistics.quantiles(added, n=10)[-1], 1),
        "gateway_ms_max": round(1e3 * max(added), 1),
    }


def answered(turns: Sequence[Turn]) -> int:
    """Returns the number of main turns with a next state."""
    return sum(
        turn.turn_type == "main" and turn.state not in (TurnState.CAPTURED, TurnState.EXPIRED)
        for turn in turns
    )
