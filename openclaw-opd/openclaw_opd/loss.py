"""The loss of top-K distillation: reverse KL over the teacher's likely ids and one bin for all others."""

from __future__ import annotations

from typing import Any

from claw_base.settings.declare import option
from openclaw_opd.flags import VARIABLES
from slime.errors import ConfigError
from slime.losses import Component, LossSpec, topk_divergence, topk_settings

__all__ = ["VARIABLES", "opd_topk"]

OF_POLICY_GRADIENT = (
    "use_tis",
    "use_opsm",
    "eps_clip_c",
    "custom_pg_loss_reducer_function_path",
    "custom_advantage_function_path",
)


def opd_topk(args: Any) -> LossSpec:
    """Returns the loss; every trained sample needs a hint; rewards and advantages are not used.

    Raises:
        ConfigError: a flag of a policy gradient.
    """
    arguments = vars(args)
    for name in OF_POLICY_GRADIENT:
        if arguments[name]:
            raise ConfigError(
                f"{option(name)} has no effect with opd_topk, which has no policy gradient; drop it"
            )
    return LossSpec(
        (Component("opd", 1.0, topk_divergence),),
        distils="topk",
        subset="teacher",
        without_hint="refuse",
        reported=topk_settings(args, "teacher"),
    )
