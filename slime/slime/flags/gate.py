"""Flags: checks of a candidate before it goes live, and versions kept on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag


@dataclass
class GateArguments:
    """Gate: checks every update between its export and the switch; rejected updates serve no requests."""

    gate: bool = flag(
        False,
        "check updates before they go live and undo rejected ones (copies weights and optimizer states)",
        main=True,
    )
    gate_max_change: float = flag(
        0.1,
        "maximum relative weight change per update, adapted to accepted ones; larger updates are scaled down",
        above=0,
    )
    gate_max_kl: float = flag(
        0.1,
        "maximum KL from live weights to candidate, nats per token; larger updates are scaled down",
        above=0,
    )
    gate_max_canary_loss: float = flag(
        0.1, "maximum mean decrease of the log-prob of liked answers, nats per token", above=0
    )
    gate_max_wrong: float = flag(
        0.04,
        "allowed decrease of the share of correct answers to --gate-data questions, from the best version",
        least=0,
    )
    gate_min_obeyed: float = flag(
        0.8,
        "minimum share of obeyed requests, relative to the first version, within the standard error",
        least=0,
        most=1,
    )
    gate_false_alarms: float = flag(
        0.02,
        "false-alarm rate of the paired tests: half for requests, a quarter each for questions and facts",
        above=0,
        most=0.5,
    )
    gate_answers_every: int = flag(
        4,
        "check answers of every Nth update, and of updates close to another gate limit",
        least=1,
    )
    gate_questions: int = flag(
        8,
        "--gate-data questions per check, all after a wrong answer; 0: all, none after the switch",
        least=0,
    )
    gate_answer_tokens: int = flag(160, "maximum tokens of a candidate's answer in a check", least=1)
    gate_engine: str = flag(
        "auto",
        "engine for the checks: serving (second weights), cpu, HOST:PORT (spare), auto (serving, "
        "cpu or none)",
    )
    gate_on_reject: Literal["lower-lr", "skip"] = flag(
        "lower-lr",
        "action after a rejection: skip the batch; lower-lr: also halve the learning rate if "
        "another one follows",
    )
    gate_adapt_lr: bool = flag(
        False,
        "adapt the learning rate to the KL of accepted updates, 1/8 to 2 times --lr",
    )
    gate_samples_path: str | None = flag(
        None,
        "f(args, rollout_id, version) -> samples that compare candidate and live weights: liked, "
        "recent, questions",
    )
    keep_versions: int = flag(
        0,
        "versions kept for rollback, newest and pinned first; 0: as --keep-checkpoints and --keep-weights",
        least=0,
    )
    on_weights_rejected_path: str | None = flag(
        None, "f(args, rollout_id, version, rejection), called after the gate has rejected an update"
    )
