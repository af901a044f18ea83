"""The current state of a run: the four loops and their lag, open sessions, alarms."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from sqlalchemy import Connection, or_, select
from sqlalchemy import func as sql

from claw_base.run_folder.records import live_processes
from openclaw.store import schema
from openclaw.types import DEFAULT_TRAINER, SampleState, TurnState, VersionStatus
from openclaw.views.alarms import alarms
from openclaw.views.sessions import open_sessions
from openclaw.views.source import ViewSource

Json = dict[str, Any]

WINDOW_SECONDS = 300.0
"""Seconds over which rates are computed."""
SCORES = 50
"""Number of newest judgements from which the share of neutral ones is computed."""
SHOWN_SESSIONS = 10
UPDATES = 8
"""Number of newest updates whose outcomes are counted."""


async def now(source: ViewSource) -> Json:
    """Returns the current state; parts that do not exist (store, engine, run folder) are None or empty."""
    engines = await _engines(source)
    return await source.in_thread(lambda: _now(source, engines))


async def _engines(source: ViewSource) -> list[Json]:
    gateway = source.gateway
    if gateway is None:
        return []
    infos = await asyncio.gather(*map(gateway.engines.info, gateway.engines.urls))
    return [
        {"url": url, "ready": info is not None, "weight_version": (info or {}).get("weight_version")}
        for url, info in zip(gateway.engines.urls, infos, strict=True)
    ]


def _now(source: ViewSource, engines: list[Json]) -> Json:
    at = time.time()
    run = source.run_dir
    processes = [] if run is None else [str(one.get("role")) for one in live_processes(run)]
    state: Json = {
        "object": "now",
        "at": at,
        "model": source.model_name,
        "finished": source.gateway is None,
        "recording": source.recorder is not None,
        "uptime_s": at - source.started,
        "processes": processes,
        "serving": {"engines": engines, **_served(source)},
        "collecting": None,
        "judging": None,
        "training": None,
        "counts": {"turns": {}, "samples": {}, "dropped": {}},
        "sessions": [],
    }
    if source.recorder is not None:
        store = source.store
        with store.database.reading() as connection:
            state["counts"] = store.status.counts()
            state["collecting"] = _collecting(connection, state["counts"]["turns"], at)
            state["judging"] = _judging(connection, state["counts"]["turns"])
            state["training"] = _training(connection, state["counts"]["samples"])
        state["sessions"] = open_sessions(store, SHOWN_SESSIONS)
    state["alarms"] = alarms(source, state)
    return state


def _served(source: ViewSource) -> Json:
    if source.metrics is None:
        return {"open": None, "answers": None, "first_token_s": None}
    registry = source.metrics
    count = registry.get_sample_value("openclaw_first_token_seconds_count") or 0.0
    total = registry.get_sample_value("openclaw_first_token_seconds_sum") or 0.0
    return {
        "open": int(registry.get_sample_value("openclaw_open_requests") or 0),
        "answers": int(count),
        "first_token_s": total / count if count else None,
    }


def _collecting(connection: Connection, turns: dict[str, int], at: float) -> Json:
    """Returns the state of the collecting loop.

    `per_minute` counts the turns of sessions that were used or ended within the window, because both times are indexed.
    """
    turn, session = schema.turn.c, schema.session.c
    since = at - WINDOW_SECONDS
    used = or_(session.ended_at.is_(None) & (session.last_seen >= since), session.ended_at >= since)
    recent = select(sql.count()).join_from(schema.turn, schema.session, turn.session_id == session.id)
    recent = recent.where(used, turn.created_at >= since)
    newest = select(sql.max(session.last_seen)).where(session.ended_at.is_(None))
    return {
        "waiting": turns.get("captured", 0),
        "per_minute": (connection.scalar(recent) or 0) * 60 / WINDOW_SECONDS,
        "newest_at": connection.scalar(newest),
    }


def _judging(connection: Connection, turns: dict[str, int]) -> Json:
    turn, judgement = schema.turn.c, schema.judgement.c
    oldest = select(sql.min(turn.answered_at)).where(turn.state == str(TurnState.ANSWERED))
    newest = select(judgement.score, judgement.created_at).where(judgement.kind == "eval")
    rows = connection.execute(newest.order_by(judgement.id.desc()).limit(SCORES)).all()
    scores = [row.score for row in rows]
    count = len(scores) or 1
    return {
        "waiting": turns.get("answered", 0),
        "oldest_at": connection.scalar(oldest),
        "newest_at": rows[0].created_at if rows else None,
        "scores": len(scores),
        "good": sum(score > 0 for score in scores) / count,
        "bad": sum(score < 0 for score in scores) / count,
        "neutral": sum(score == 0 for score in scores) / count,
    }


def _training(connection: Connection, samples: dict[str, int]) -> Json:
    sample, version = schema.sample.c, schema.weight_version.c
    oldest = select(sql.min(sample.created_at)).where(sample.state == str(SampleState.READY))
    live = select(version.version, version.activated_at).where(version.status == str(VersionStatus.LIVE))
    row = connection.execute(live.order_by(version.activated_at.desc()).limit(1)).first()
    newest = select(version.status).where(version.trainer == DEFAULT_TRAINER, version.rollout_id >= 0)
    outcomes = list(connection.scalars(newest.order_by(version.version.desc()).limit(UPDATES)))
    refused = {str(VersionStatus.REJECTED), str(VersionStatus.ROLLED_BACK)}
    return {
        "ready": samples.get("ready", 0),
        "leased": samples.get("leased", 0),
        "trained": samples.get("trained", 0),
        "oldest_at": connection.scalar(oldest),
        "live_version": row.version if row else 0,
        "live_since": row.activated_at if row else None,
        "updates": len(outcomes),
        "refused": sum(outcome in refused for outcome in outcomes),
        "versions": connection.scalar(select(sql.count()).select_from(schema.weight_version)) or 0,
    }
