"""Alarms about problems of a run, each with its cause and a remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from claw_base.run_folder.records import dead_roles
from openclaw.common.unsampled import advice
from openclaw.judge.settings import JudgeSettings
from openclaw.trainer_hooks.next_batch import Backlog
from openclaw.views.source import ViewSource

Json = dict[str, Any]

GAP = "train/train_rollout_logprob_abs_diff"
LOOKED_AT = 50
"""Number of newest turns whose sampling temperature is checked."""
ENOUGH = 4
"""Fewest updates from which the share of rejected ones is computed."""
ROLES = ("engine", "judge", "driver", "trainer")


def alarms(source: ViewSource, now: Json) -> list[Json]:
    """Returns `[{"name", "text"}]` for the problems in the current state."""
    alarms_by_kind: dict[str, str] = {}
    engines = now["serving"]["engines"]
    if engines and not any(engine["ready"] for engine in engines):
        alarms_by_kind["engine"] = "no engine responds: requests wait until one does; see the engine's log"
    if not now["recording"]:
        alarms_by_kind["recording"] = (
            "turns are not recorded, so the model is not trained: start with --enable-rl-intercept"
        )
    if source.recorder is not None:
        newest = source.store.status.recent(LOOKED_AT)
        advice_text = advice([one.unsampled for one in newest if one.turn_type == "main"])
        alarms_by_kind |= {} if advice_text is None else {"greedy": advice_text}
    if now["judging"] and not now["finished"]:
        alarms_by_kind |= _of_loops(source, now)
    if source.run_dir is not None and not now["finished"]:
        alarms_by_kind |= _of_processes(source.run_dir)
    alarms_by_kind |= _of_training(source)
    return [{"name": name, "text": text} for name, text in alarms_by_kind.items()]


def _of_loops(source: ViewSource, now: Json) -> dict[str, str]:
    judging = now["judging"]
    alarms_by_kind = {}
    limit = JudgeSettings.judge_neutral_limit
    if judging["scores"] >= JudgeSettings.judge_neutral_window and judging["neutral"] >= limit:
        alarms_by_kind["neutral"] = (
            f"{judging['neutral']:.0%} of the last {judging['scores']} judgements are neutral: check some turns, "
            "or set another judge (JUDGE_BACKEND)"
        )
    alarms_by_kind |= _of_updates(now["training"])
    batch = _batch_size(source.run_dir)
    return (
        alarms_by_kind
        if batch is None
        else alarms_by_kind | Backlog(now["training"]["ready"], judging["waiting"], batch).advice()
    )


def _of_updates(training: Json) -> dict[str, str]:
    """Returns an alarm if most of the newest updates were rejected or undone."""
    count, refused = training["updates"], training["refused"]
    if count < ENOUGH or 2 * refused <= count:
        return {}
    return {
        "gate": f"{refused} of the last {count} updates were rejected or undone: the learning rate may be too "
        "high, or training on the newest turns makes answers worse; the page Versions shows reasons and turns"
    }


def _of_processes(run_dir: Path) -> dict[str, str]:
    dead = [role for role in dead_roles(run_dir) if role in ROLES]
    if not dead:
        return {}
    return {"processes": f"not running: {', '.join(dead)}. Serving continues; see the logs in the run folder"}


def _of_training(source: ViewSource) -> dict[str, str]:
    rows = source.curves.rows() if source.curves else []
    last = rows[-1] if rows else {}
    if last.get(f"{GAP}_alarm"):
        return {
            "log_probs": f"log-probs of trainer and engine differ by {last.get(GAP, 0):.3g} nats a token on the same "
            "weights: check temperature, dtype and chat template"
        }
    return {}


def _batch_size(run_dir: Path | None) -> int | None:
    """Returns the batch size of the last start of the run; None if unknown."""
    if run_dir is None:
        return None
    try:
        return max(int(orjson.loads((run_dir / "arguments.json").read_bytes())["rollout_batch_size"]), 1)
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError, ValueError):
        return None
