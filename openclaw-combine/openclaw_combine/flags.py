"""Flags of the two combined methods, their limits, and the variables of their launch scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Literal

from claw_base.settings.declare import flag, option, read
from openclaw_opd.flags import VARIABLES as OF_TEACHER
from slime.errors import ConfigError

VARIABLES = {**OF_TEACHER, "teacher_source": ("OPENCLAW_COMBINE_OPD_TEACHER_SOURCE",)}


@dataclass(frozen=True)
class CombineFlags:
    """combine: rewards and teacher in one advantage."""

    combine_w_rl: float = flag(
        1.0, "weight of the rewards in combine", env=("OPENCLAW_COMBINE_W_RL",), least=0
    )
    combine_w_opd: float = flag(
        1.0,
        "weight of the teacher in combine; 0 disables it",
        env=("OPENCLAW_COMBINE_W_OPD",),
        least=0,
    )
    combine_center_teacher: bool = flag(
        False,
        "in combine, center the teacher's advantages over the response: unrelated hints teach little",
    )


@dataclass(frozen=True)
class TopkSelectFlags:
    """topk_select: rewards, and distillation from selected hints."""

    topk_w_rl: float = flag(1.0, "weight of the rewards in topk_select", env=("OPENCLAW_TOPK_W_RL",), least=0)
    topk_w_opd: float = flag(
        1.0,
        "weight of the teacher in topk_select; 0 disables it",
        env=("OPENCLAW_TOPK_W_OPD",),
        least=0,
    )
    topk_plain_teacher: bool = flag(
        True,
        "in topk_select, distill turns without a hint from their plain prompt; otherwise they learn "
        "from rewards alone",
    )
    topk_divergence: Literal["clipped", "reverse", "forward"] = flag(
        "clipped",
        "how topk_select compares student and teacher over likely ids: PPO's clip on each id, reverse"
        " KL (student to teacher) or forward KL",
    )
    topk_adv_diff_clip: float = flag(
        2.0,
        "limit of teacher minus student log-prob, in nats, with --topk-divergence clipped; 0: no limit",
        env=("OPENCLAW_TOPK_ADV_DIFF_CLIP",),
        least=0,
    )
    topk_eps_clip: float | None = flag(
        None,
        "--eps-clip of topk_select (default: --eps-clip)",
        env=("OPENCLAW_TOPK_PPO_CLIP_EPS_LO",),
        least=0,
        below=1,
    )
    topk_eps_clip_high: float | None = flag(
        None,
        "--eps-clip-high of topk_select (default: --eps-clip-high)",
        env=("OPENCLAW_TOPK_PPO_CLIP_EPS_HI",),
        least=0,
    )


FLAGS: tuple[type, ...] = (CombineFlags, TopkSelectFlags)


def check_weights(flags: CombineFlags | TopkSelectFlags, names: Sequence[str]) -> None:
    """Raises ConfigError if all weights are 0."""
    if not any(getattr(flags, name) for name in names):
        both = " and ".join(map(option, names))
        raise ConfigError(f"{both} are both 0, so nothing would be trained; raise one of them")


def refuse(args: object, group: type, loss: str, owner: str) -> None:
    """Raises ConfigError for a flag of `group` that is set although `loss` is trained, not `owner`."""
    flags, default = read(group, args), group()
    for item in fields(group):
        if getattr(flags, item.name) != getattr(default, item.name):
            raise ConfigError(f"{option(item.name)} has no effect with {loss}, it is for {owner}; drop it")
