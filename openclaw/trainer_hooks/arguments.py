"""All flags of the hooks in this folder, one group a topic, combined in `HookSettings`.

A trainer passes one object with all flags to its hooks. `HookSettings.of` converts it; other code here does not
access that object.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from claw_base.settings.declare import flag, needs, read
from openclaw.dreaming.settings import DreamArguments
from openclaw.judge.settings import JudgeSettings
from openclaw.methods.method import Method
from openclaw.settings import Settings
from openclaw.types import DEFAULT_TRAINER, policy_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")


def shared(owner: type, name: str, variables: bool = True) -> Any:
    """Returns a setting of the gateway or the judge as a flag of the trainer, with its help, default and bounds.

    Args:
        variables: read its environment variables too.
    """
    (item,) = (item for item in dataclasses.fields(owner) if item.name == name)
    more = {} if variables else {"env": ()}
    return field(default=item.default, metadata={**item.metadata, **more})


@dataclass(frozen=True)
class BufferArguments:
    """Rollout buffer: where conversations become training batches."""

    rl_buffer_dir: str | None = shared(Settings, "rl_buffer_dir", variables=False)
    rl_buffer_url: str | None = shared(Settings, "rl_buffer_url", variables=False)
    batch_timeout: float = flag(
        30.0,
        "age of the oldest sample at which an incomplete batch is trained",
        above=0,
        unit="seconds",
    )
    catch_up_batch_size: int = flag(
        0,
        "largest batch if more samples are ready than --rollout-batch-size; 0: never larger",
        least=0,
    )
    session_ttl: float = shared(Settings, "session_ttl")
    retention_days: float = flag(
        0.0,
        "days after which trained, dropped or ended turns are deleted; 0: never",
        least=0,
        below=float("inf"),
        unit="days",
    )
    max_person_share: float = flag(
        0.75,
        "largest share of an hour's samples from one person, if several teach; 1: no limit",
        above=0,
        most=1,
    )
    trainer_id: str = flag(
        DEFAULT_TRAINER,
        "name of this trainer's leases and versions; must be unique among trainers on one buffer",
    )

    @property
    def location(self) -> str | None:
        """URL or folder of the rollout buffer."""
        return self.rl_buffer_url or self.rl_buffer_dir


@dataclass(frozen=True)
class ReplayArguments:
    """Replay: earlier turns that are trained again after each batch."""

    replay_steps: int = flag(
        0,
        "optimizer steps after each batch, on turns of this and earlier batches; 0: none",
        least=0,
        most=64,
    )
    replay_samples: int = flag(4, "turns per replay step", least=1, most=1024)
    replay_window: int = flag(16, "newest samples from which replayed turns are drawn", least=1, most=4096)


@dataclass(frozen=True)
class AnchorArguments:
    """Anchors: prompts with an explicit request, so that the model keeps obeying requests."""

    anchor_share: float = flag(
        0.0,
        "anchors per replayed turn (per sample without --replay-steps): answers to prompts "
        "with an explicit request, distilled from the teacher; 0: none",
        least=0,
        most=8,
    )
    anchor_wishes: str | None = flag(
        None, "file with one request per line, instead of openclaw.methods.anchors.WISHES"
    )


@dataclass(frozen=True)
class StandingArguments:
    """Standing preferences: requests that the teacher gets in addition to a turn's hint."""

    standing_wishes: Literal["none", "person", "people"] = flag(
        "none",
        "add the last two wishes of this person, or of everyone, to the prompts of the trainer's teacher",
    )
    standing_liked: bool = flag(
        False,
        "with --standing-wishes, also teach wishes on liked turns: faster, but explicit requests are "
        "obeyed less for a while",
        rules=[
            needs(
                "standing_wishes",
                text="--standing-liked needs --standing-wishes person or people; add it, or drop this flag",
            )
        ],
    )

    @property
    def is_on(self) -> bool:
        return self.standing_wishes != "none"


ADAPTER = "policy_adapter"
"""Argument of a trainer that trains several adapters in turn: the adapter that a hook is called for."""
TRUST_BAR = 0.5
_WITH_TRUST = needs("trust", text="{flag} works only with --trust facts; add that, or drop it")


@dataclass(frozen=True)
class TrustArguments:
    """Trust: weights of people's feedback if several teach."""

    trust: Literal["none", "facts"] = flag(
        "none",
        "facts: weigh ratings by agreement with tool results and --facts-path; a lone teacher is trusted",
    )
    trust_bar: float | None = flag(
        None,
        f"with --trust facts, below this trust a person's samples wait and teach nothing (default: {TRUST_BAR})",
        least=0,
        below=1,
        rules=[_WITH_TRUST],
    )
    facts_path: str | None = flag(
        None,
        "with --trust facts, function (module:name or file.py:name) that returns True (right), False "
        "or None for a turn",
        rules=[_WITH_TRUST],
    )

    @property
    def is_on(self) -> bool:
        return self.trust != "none"

    @property
    def bar(self) -> float:
        return TRUST_BAR if self.trust_bar is None else self.trust_bar


@dataclass(frozen=True)
class ProbationArguments:
    """Probation: monitoring of newer versions by the scores of their turns."""

    probation_turns: int = flag(
        50, "judged turns during which newer versions are monitored; 0: none", least=0
    )
    probation_false_alarms: float = flag(
        0.01, "probability of a false alarm within the monitored turns", above=0, most=1
    )


@dataclass(frozen=True)
class ObservationArguments:
    """Observation loss: messages that --echo-coef learns to predict."""

    echo_roles: list[Literal["user", "tool"]] = flag(
        ["user", "tool"], "roles whose messages are targets of --echo-coef"
    )
    echo_longest: int = flag(512, "most tokens read after an answer", least=1, unit="tokens")


@dataclass(frozen=True)
class GateSampleArguments:
    """Gate samples: samples on which updates are checked before they go live."""

    gate_data: Path | None = flag(
        None,
        'JSON lines that a candidate answers: questions {"messages": [...], "answer": "19"} and '
        'explicit wishes {"messages": [...], "form": "^1\\\\."} (a regular expression)',
    )
    gate_facts: Path | None = flag(
        None,
        "JSON lines of facts; each update must keep most of those that the model knew",
    )
    gate_liked: int = flag(
        8, "number of liked answers, old and new, on which candidates are compared", least=0
    )
    gate_recent: int = flag(8, "number of newest answers on which candidates are compared", least=0)
    gate_longest: int = flag(
        4096, "longest prompt and answer on which candidates are compared", least=1, unit="tokens"
    )


@dataclass(frozen=True)
class JudgeProcessArguments:
    """Judge processes: their number, and the method that they run."""

    num_judge_workers: int = flag(1, "number of judge processes", least=1)
    method_path: str | None = flag(
        None, "module:attr that converts a judged turn to a sample, or drops and counts it; required"
    )


BATCH_FLAGS: tuple[type, ...] = (
    BufferArguments,
    ReplayArguments,
    AnchorArguments,
    DreamArguments,
    StandingArguments,
    TrustArguments,
    ProbationArguments,
    ObservationArguments,
)
"""The flags of the hooks that make batches."""


@dataclass(frozen=True)
class TrainerFlags:
    """The trainer's own flags that the hooks read, by the trainer's names."""

    hf_checkpoint: str
    run_dir: str
    rollout_batch_size: int
    max_staleness: int | None
    stale_weight: float
    echo_coef: float
    reward_key: str | None
    custom_reward_post_process_path: str | None
    teacher_source: str | None
    train_epochs: int
    use_tis: bool
    use_rollout_logprobs: bool


def by_name(cls: type[D], args: object) -> D:
    """Returns the dataclass filled from flags of the same names. Raises AttributeError for a missing one."""
    names = [item.name for item in dataclasses.fields(cls)]
    return cls(*operator.attrgetter(*names)(args))


@dataclass(frozen=True)
class ServedArguments:
    """Flags of `services` that affect batches; defaults if the trainer does not use that hook."""

    method_path: str | None = flag(None, "")
    train_adapters: str | None = flag(None, "")
    memory: bool | None = shared(Settings, "memory")
    eval_mode: int | None = shared(JudgeSettings, "eval_mode")
    rollout_external_engine_addrs: list[str] = flag([], "")


@dataclass(frozen=True)
class HookSettings:
    """The trainer's arguments for the hooks, typed.

    Attributes:
        values: all flags by name, for the options that a method declares.
    """

    trainer: TrainerFlags
    buffer: BufferArguments
    replay: ReplayArguments
    anchors: AnchorArguments
    dreams: DreamArguments
    standing_preferences: StandingArguments
    trust: TrustArguments
    probation: ProbationArguments
    observation: ObservationArguments
    served: ServedArguments
    values: Mapping[str, object] = field(compare=False)

    @classmethod
    def of(cls, args: object) -> HookSettings:
        """Converts the trainer's arguments. Raises ConfigError if a flag violates its bounds or rules, and
        AttributeError for a trainer without one of `TrainerFlags`."""
        buffer, probation = read(BufferArguments, args), read(ProbationArguments, args)
        if (adapter := vars(args).get(ADAPTER)) is not None:
            buffer = replace(buffer, trainer_id=policy_of(buffer.trainer_id, adapter))
        return cls(
            by_name(TrainerFlags, args),
            buffer,
            read(ReplayArguments, args),
            read(AnchorArguments, args),
            read(DreamArguments, args),
            read(StandingArguments, args),
            read(TrustArguments, args),
            probation,
            read(ObservationArguments, args),
            read(ServedArguments, args),
            vars(args),
        )

    @property
    def teaches_in_trainer(self) -> bool:
        """Returns whether the method has a teacher that runs in the trainer. Raises ConfigError for an unknown
        method."""
        if self.trainer.teacher_source == "inference" or self.served.method_path is None:
            return False
        method = Method.load(self.served.method_path)
        options = {"eval_mode": self.served.eval_mode or 1, **method.chosen(self.values)}
        return method.needs(options).teacher != "none"

    @property
    def distils_memory(self) -> bool:
        """Returns whether answers to prompts with memory are distilled: memory is on, and the teacher is in the
        trainer. Otherwise preferences stay in the prompts, unless the weights learn them in another way."""
        return bool(self.served.memory) and self.teaches_in_trainer

    @property
    def trains_more(self) -> bool:
        """Returns whether there are extra steps after a batch."""
        return bool(self.anchors.anchor_share or self.replay.replay_steps) or self.distils_memory
