"""The numbers and names that formulas of this library take, as small frozen records.

Each field has the name of the flag that sets it, and the flag's default. So `settings_of` reads any object with such
attributes, above all the `args` that a hook gets, and this library imports no flag group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from slime.hooks import load_hook
from slime.losses.formula import Reducer
from slime.losses.kl import KLType

S = TypeVar("S")


@dataclass(frozen=True)
class AdvantageSettings:
    """How rewards become advantages.

    Attributes:
        kl_coef: weight of the divergence in the reward of a token, reward a nat.
        kl_loss_type: the estimator of that divergence.
        gamma, lambd: discount of rewards and of GAE from token to token, 0 to 1.
    """

    advantage_estimator: str = "grpo"
    kl_coef: float = 0.0
    kl_loss_type: KLType = "k1"
    gamma: float = 1.0
    lambd: float = 1.0


@dataclass(frozen=True)
class CorrectionSettings:
    """How tokens are weighed that the present policy would not have written.

    Attributes:
        use_opsm, opsm_delta: drop tokens of samples whose mean log-prob fell by more than this, nats a token.
        use_tis: weigh by trainer over engine; get_mismatch_metrics: measure these weights only.
        tis_mode: "truncate" or "icepop"; tis_spans: "all" tokens or "older" ones.
        tis_clip_low, tis_clip: range of the weights, probability ratios.
        custom_tis: the user's function in place of `tis_mode`, and the `args` that it gets.
    """

    use_opsm: bool = False
    opsm_delta: float = 1e-4
    use_tis: bool = False
    get_mismatch_metrics: bool = False
    tis_mode: str = "truncate"
    tis_spans: str = "all"
    tis_clip_low: float = 0.0
    tis_clip: float = 2.0
    custom_tis: tuple[Callable[..., Any], object] | None = None


@dataclass(frozen=True)
class PolicySettings:
    """The clipped policy gradient.

    Attributes:
        advantage_estimator: "gspo" and "cispo" name an objective too; all others take PPO's.
        use_opd: advantages follow a teacher, so the ratio counts from the weights before the update.
        eps_clip, eps_clip_high: the probability ratio stays in [1 - eps_clip, 1 + eps_clip_high]; None: `eps_clip` twice.
        eps_clip_c: bound of the loss of tokens with negative advantage, a ratio above 1; None: no bound.
        calculate_per_token_loss: every trained token weighs the same, not every sample.
        make_reducer: the user's f(total_lengths, response_lengths, loss_masks, per_token) -> reducer of [sum of R].
    """

    advantage_estimator: str = "grpo"
    use_opd: bool = False
    eps_clip: float = 0.2
    eps_clip_high: float | None = None
    eps_clip_c: float | None = None
    calculate_per_token_loss: bool = False
    corrections: CorrectionSettings = field(default_factory=CorrectionSettings)
    make_reducer: Callable[..., Reducer] | None = None

    @property
    def follows_teacher(self) -> bool:
        """A teacher's log-probs are part of the advantages."""
        return self.use_opd or self.advantage_estimator == "on_policy_distillation"


@dataclass(frozen=True)
class TeacherSettings:
    """Which likely ids are compared with a teacher's, and which hint teaches; a subset of None: as the loss says."""

    distill_subset_mode: str | None = None
    hint_selection: str = "shortest"


def settings_of(kind: type[S], args: Any) -> S:
    """The record of this kind that `args` describes.

    Args:
        args: a record of this kind, or an object with an attribute for each flag.

    Raises:
        AttributeError: a flag is missing.
        ConfigError: the user's function behind a flag cannot be loaded.
    """
    if isinstance(args, kind):
        return args
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: LOADED[name](args) if name in LOADED else getattr(args, name) for name in names})


def _custom_tis(args: Any) -> tuple[Callable[..., Any], object] | None:
    weighs = args.use_tis or args.get_mismatch_metrics
    function = load_hook(args, "custom_tis_function_path") if weighs else None
    return None if function is None else (function, args)


LOADED: dict[str, Callable[[Any], Any]] = {
    "corrections": lambda args: settings_of(CorrectionSettings, args),
    "custom_tis": _custom_tis,
    "make_reducer": lambda args: load_hook(args, "custom_pg_loss_reducer_function_path"),
}
"""Fields that are not the value of one flag."""
