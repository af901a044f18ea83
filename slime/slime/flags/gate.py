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
        "examine every update before it goes live; a rejected one is undone in the trainer, which goes on with the next "
        "batch (keeps a copy of weights and optimizer states in CPU memory)",
        main=True,
    )
    gate_max_change: float = flag(
        0.1,
        "largest change of the weights by one update, norm of the difference over norm of the weights; less once "
        "earlier updates have shown how large they are; a larger one is shrunk",
        above=0,
    )
    gate_max_kl: float = flag(
        0.1,
        "largest KL of the live weights to the candidate on recent answers, nats a token; one token counts 1 at most; an "
        "update beyond half of it is shrunk along its direction to that half",
        above=0,
    )
    gate_max_canary_loss: float = flag(
        0.1, "nats a token by which answers that people liked may become less likely, on average", above=0
    )
    gate_max_wrong: float = flag(
        0.04,
        "share of the questions of --gate-data that may be wrong beyond the best version so far",
        least=0,
    )
    gate_min_obeyed: float = flag(
        0.8,
        "share of the explicit wishes of --gate-data that the best version obeyed which an update must obey too, unless "
        "it obeys as many as what is live; each update is put all of them",
        least=0,
        most=1,
    )
    gate_false_alarms: float = flag(
        0.02,
        "share of updates that lost nothing which the paired tests may reject: half of it for explicit wishes, a "
        "quarter each for questions and for facts",
        above=0,
        most=0.5,
    )
    gate_answers_every: int = flag(
        4,
        "let every so manieth update answer before it goes live, and each that comes near a limit of the stages before",
        least=1,
    )
    gate_questions: int = flag(
        8,
        "questions of --gate-data that such an update answers, in turn, and all of them where one is wrong; a quarter of "
        "all is put to every version right behind its switch, and one that has fallen is gone back from. 0: all before "
        "the switch, none behind",
        least=0,
    )
    gate_answer_tokens: int = flag(160, "longest answer that a candidate gives to be looked at", least=1)
    gate_engine: str = flag(
        "auto",
        "what answers with the weights of a candidate. serving: the engine that serves, if it holds a second set "
        "(embedded); cpu: an engine of its own on half of the driver's CPUs, of dense models that embedded serves; "
        "HOST:PORT: a spare engine of the model that serves nobody and sees the run folder; auto: serving, else cpu for "
        "up to 5 billion parameters where CPUs and memory are enough, else none, with a warning",
    )
    gate_on_reject: Literal["lower-lr", "skip"] = flag(
        "lower-lr",
        "after a rejection: skip the batch; with lower-lr also halve the learning rate for each further rejection in a "
        "row, until an update is accepted",
    )
    gate_adapt_lr: bool = flag(
        False,
        "adapt the learning rate to the KL of accepted updates: 1.5 times where it is below an eighth of its limit, less "
        "by that where it is above a half, within 1/8 and 2 times --lr",
    )
    gate_samples_path: str | None = flag(
        None,
        "f(args, rollout_id, version) -> samples on which live weights and candidate are compared: answers that people "
        "liked, recent answers, questions",
    )
    keep_versions: int = flag(
        0,
        "versions that can be gone back to: the newest and, thinned out, older ones; the first and a pinned one always "
        "stay; each has a checkpoint. 0: --keep-checkpoints and --keep-weights alone decide",
        least=0,
    )
    on_weights_rejected_path: str | None = flag(
        None, "f(args, rollout_id, version, rejection), called when the gate has rejected an update"
    )
