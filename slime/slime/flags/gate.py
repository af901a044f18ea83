"""Flags: what a candidate must pass before it goes live, and which versions stay on disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from claw_base.settings.declare import flag


@dataclass
class GateArguments:
    """Gate: examines every update between its export and the switch; what it rejects never answers anybody."""

    gate: bool = flag(
        False,
        "check updates before they go live and undo rejected ones (copies weights and optimizer states)",
        main=True,
    )
    gate_max_change: float = flag(
        0.1,
        "largest relative change of the weights per update, adapted; larger updates are shrunk",
        above=0,
    )
    gate_max_kl: float = flag(
        0.1,
        "largest KL of live weights to candidate, nats a token; larger updates are shrunk",
        above=0,
    )
    gate_max_canary_loss: float = flag(
        0.1, "largest mean decrease of the log-prob of liked answers, nats a token", above=0
    )
    gate_max_wrong: float = flag(
        0.04,
        "share of --gate-data questions that may be wrong beyond the best version",
        least=0,
    )
    gate_min_obeyed: float = flag(
        0.8,
        "share of the best version's followed wishes that each update must follow too",
        least=0,
        most=1,
    )
    gate_false_alarms: float = flag(
        0.02,
        "false-alarm rate of the paired tests: half for wishes, a quarter each for questions and facts",
        above=0,
        most=0.5,
    )
    gate_answers_every: int = flag(
        4,
        "check answers of every Nth update, and of updates close to an earlier limit",
        least=1,
    )
    gate_questions: int = flag(
        8,
        "--gate-data questions per check (all after a wrong answer), a quarter after going live; 0: "
        "all before",
        least=0,
    )
    gate_answer_tokens: int = flag(160, "most tokens of a candidate's answer in a check", least=1)
    gate_engine: str = flag(
        "auto",
        "engine of the checks: serving (second weights), cpu, HOST:PORT (spare), auto (serving, cpu or none)",
    )
    gate_on_reject: Literal["lower-lr", "skip"] = flag(
        "lower-lr",
        "after a rejection skip the batch; lower-lr also halves the learning rate from the second in a row",
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
        "versions kept for rollback, newest and pinned first; 0: --keep-checkpoints and "
        "--keep-weights decide",
        least=0,
    )
    on_weights_rejected_path: str | None = flag(
        None, "f(args, rollout_id, version, rejection), called when the gate has rejected an update"
    )
