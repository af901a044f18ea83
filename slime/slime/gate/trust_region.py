"""Limits the length of a step: a long step is shrunk along its direction, not rejected. Does not import
torch.

For short steps, the KL grows with the square of the length; the change of the weights and the loss of liked
answers grow linearly. A trust region as in TRPO (line search, Schulman 2015), and an adaptive step as in PPO
(Schulman 2017).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from slime.gate.limits import kl_of_near_teacher, largest_kl

if TYPE_CHECKING:
    from slime.flags.gate import GateArguments

logger = logging.getLogger(__name__)

TARGET = 0.5
"""Radius of the trust region, as a share of the limit; wider towards a nearby hinted teacher."""
AIM = 0.9
"""Share of the KL target that shrinking aims at, because its growth is only approximately known."""
TRIES = 6
"""Maximum times that a step is shrunk; a step that still exceeds a limit is rejected."""
FASTER = 1.5
"""Factor by which the learning rate is multiplied or divided."""
RATES = (1 / 8, 2.0)
"""Bounds of the learning rate, relative to --lr."""


class Shrinks(Protocol):
    """The trainer's interface for shrinking a step."""

    def shrink(self, share: float) -> None: ...


def share_within(measurements: dict[str, float], args: GateArguments, power: int = 2) -> float:
    """Returns the share of a step that stays within the trust region; 1 for the whole step.

    1 also if a measurement is not finite, because shrinking cannot fix that. The KL is always kept below its
    target; change and loss of liked answers are reduced only if they exceed their limits.

    Args:
        power: exponent of the KL's growth with the step's length.
    """
    target = radius(measurements, args)
    measures = [
        (measurements.get("kl", 0.0), target, AIM * target, power),
        (
            measurements.get("change", 0.0),
            most := measurements.get("most_change", math.inf),
            TARGET * most,
            1,
        ),
        (measurements.get("liked_loss", 0.0), most := args.gate_max_canary_loss, TARGET * most, 1),
    ]
    if not all(math.isfinite(value) for value, *_ in measures):
        return 1.0
    return min((aim / value) ** (1 / grows) if value > most else 1.0 for value, most, aim, grows in measures)


def radius(measurements: dict[str, float], args: GateArguments) -> float:
    """Returns the KL up to which a step is not shrunk: a share of the limit, or the KL of a nearby hinted
    teacher.

    With half of that KL a preference needs several sessions, although the full KL does not affect explicit
    requests and facts (lab/findings/dreaming.md).
    """
    return max(TARGET * largest_kl(measurements, args), kl_of_near_teacher(measurements, args))


def shorten(
    trainers: Shrinks,
    measurements: dict[str, float],
    args: GateArguments,
    measure: Callable[[], dict[str, float]],
) -> bool:
    """Shrinks the trainer's step until it is within the trust region; returns whether the weights have
    changed.

    Args:
        measurements: measurements of the whole step. They are replaced by the last ones; `step_share`, the
            remaining share of the step, and `whole_kl` are added.
        measure: measures the likelihoods of the current weights.
    """
    measurements["step_share"] = 1.0
    if "kl" in measurements:
        measurements["whole_kl"] = measurements["kl"]
    for tried in range(TRIES):
        # the KL of a long step grows more slowly than the square, because each token counts at most `MOST`
        share = share_within(measurements, args, power=1 if tried else 2)
        if share == 1:
            break
        logger.info("the update is shrunk to %.3g of its length: %s", share, measurements)
        trainers.shrink(share)
        measurements["step_share"] *= share
        if "change" in measurements:
            measurements["change"] *= share
        measurements |= measure()
    return measurements["step_share"] < 1


def adapted_rate(rate: float, measurements: dict[str, float], args: GateArguments) -> float:
    """Returns the factor of --lr after an accepted update, from the KL of its whole step."""
    kl = measurements.get("whole_kl", measurements.get("kl"))
    if kl is None:
        return rate
    target = radius(measurements, args)
    factor = FASTER if kl < target / 4 else 1 / FASTER if kl > target else 1.0
    least, most = RATES
    return min(most, max(least, rate * factor))
