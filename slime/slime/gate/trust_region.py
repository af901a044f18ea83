"""How long a step may be: one beyond a limit of distance is shrunk along its direction, not rejected. Imports no torch.

The KL of a short step grows with the square of its length, the change of the weights and the fall of liked answers with
its length. A trust region as in TRPO (line search, Schulman 2015), and an adaptive step as in PPO (Schulman 2017).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from slime.gate.limits import largest_kl

if TYPE_CHECKING:
    from slime.flags.gate import GateArguments

logger = logging.getLogger(__name__)

TARGET = 0.5
"""Share of a limit at which a step ends that was beyond it."""
TRIES = 6
"""Times that a step is shrunk; one that is beyond a limit then is broken."""
FASTER = 1.5
"""What the learning rate is multiplied or divided by at a time."""
RATES = (1 / 8, 2.0)
"""Bounds of the learning rate, in --lr."""


class Shrinks(Protocol):
    """The trainer, as far as a step is shrunk."""

    def shrink(self, share: float) -> None: ...


def share_within(found: dict[str, float], args: GateArguments) -> float:
    """The share of a step that brings what was measured to `TARGET` of its limits; 1: all of it is within them, or
    something is no number, which no step repairs."""
    measures = [
        (found.get("change", 0.0), found.get("most_change", math.inf), 1),
        (found.get("kl", 0.0), largest_kl(found, args), 2),
        (found.get("liked_loss", 0.0), args.gate_max_canary_loss, 1),
    ]
    if not all(math.isfinite(value) for value, _, _ in measures):
        return 1.0
    return min(
        (TARGET * most / value) ** (1 / power) if value > most else 1.0 for value, most, power in measures
    )


def shorten(
    trainers: Shrinks, found: dict[str, float], args: GateArguments, measure: Callable[[], dict[str, float]]
) -> bool:
    """Shrinks the trainer's step until it is within all limits of distance; returns whether the weights have changed.

    Args:
        found: of the whole step. Gets what was measured last, `step_share`, what is left of the step, and `whole_kl`.
        measure: the likelihoods of the present weights.
    """
    found["step_share"] = 1.0
    if "kl" in found:
        found["whole_kl"] = found["kl"]
    for _ in range(TRIES):
        share = share_within(found, args)
        if share == 1:
            break
        logger.info("the step is shrunk to %.3g of its length: %s", share, found)
        trainers.shrink(share)
        found["step_share"] *= share
        if "change" in found:
            found["change"] *= share
        found |= measure()
    return found["step_share"] < 1


def adapted_rate(rate: float, found: dict[str, float], args: GateArguments) -> float:
    """What --lr is multiplied by after an accepted update, from the KL of its whole step."""
    kl = found.get("whole_kl", found.get("kl"))
    if kl is None:
        return rate
    target = TARGET * largest_kl(found, args)
    factor = FASTER if kl < target / 4 else 1 / FASTER if kl > target else 1.0
    least, most = RATES
    return min(most, max(least, rate * factor))
