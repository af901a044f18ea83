"""Limits of the measurements. Pure functions; each returns the reason for a rejection, or None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slime.gate.paired import (
    CHANCE,
    SPLIT,
    Outcomes,
    at_least,
    chance_of,
    flips,
    is_worse,
    lost_and_gained,
    share,
)

if TYPE_CHECKING:
    from slime.flags.gate import GateArguments

WORSE = 0.1
"""Allowed increase of a share of malformed answers over that of the live weights; one more answer is always
allowed."""
SHARES = {
    "empty": "are empty",
    "endless": "are not terminated",
    "repeating": "are repetitive",
    "other_script": "use another script than those of the live weights",
    "same": "are identical",
}
LENGTHS = (1 / 3, 3.0)
"""Allowed ratio of the mean length to the live one."""
TEACHER_SHARE = 0.25
"""Share of the KL to the hinted teacher that one update may always use."""
NEAR_TEACHER = 5.0
"""A hinted teacher may be reached in one update if its KL is at most this multiple of --gate-max-kl."""
NEAR = 0.25
"""Share of a limit above which an update is examined more closely."""
SURPRISE = 0.5
"""Allowed change of the mean log-prob of greedy answers, in nats per token."""
ERRORS = 3.0
"""Standard errors by which a mean of few answers may exceed its limit, since short answers vary by chance."""
FACTOR = 4.0
"""Maximum ratio of the next change to the largest accepted one."""
ENOUGH = 5
"""Minimum number of accepted changes for this bound."""
WINDOW = 32
"""Number of newest accepted changes that count."""


def bad_change(measurements: dict[str, float], accepted: Sequence[float], args: GateArguments) -> str | None:
    """Returns the reason if the change of the weights exceeds its bound, which is added as `most_change`.

    Args:
        accepted: changes of earlier updates.
    """
    if "change" not in measurements:
        return None
    most = measurements["most_change"] = largest_change(accepted, args.gate_max_change)
    if measurements["change"] <= most:
        return None
    return (
        f"the relative change of the weights is {measurements['change']:.3g}, above the limit of {most:.3g}"
    )


def bad_likelihood(measurements: dict[str, float], args: GateArguments) -> str | None:
    """Returns the reason if the KL to the live weights or the log-prob drop of liked answers exceeds its
    limit.

    A missing measurement is not checked; NaN exceeds every limit.
    """
    most = largest_kl(measurements, args)
    if "kl" in measurements and not measurements["kl"] <= most:
        return (
            f"the KL to the live weights is {measurements['kl']:.3g} nats per token, above the limit "
            f"of {most:g}"
        )
    if "liked_loss" in measurements and not measurements["liked_loss"] <= args.gate_max_canary_loss:
        return (
            f"liked answers became less likely by {measurements['liked_loss']:.3g} nats per "
            f"token, above the limit of {args.gate_max_canary_loss:g}"
        )
    return None


def is_near(measurements: dict[str, float], args: GateArguments) -> bool:
    """Returns whether an update is close to a limit of the first two stages, or makes liked answers far more likely:
    such an update may give them to other questions too."""
    near = measurements.get("kl", 0.0) > NEAR * largest_kl(measurements, args)
    liked_loss = measurements.get("liked_loss", 0.0)
    near |= liked_loss > NEAR * args.gate_max_canary_loss or liked_loss < -args.gate_max_canary_loss
    return near or measurements.get("change", 0.0) > 2 * NEAR * measurements.get("most_change", float("inf"))


def bad_answers(
    measurements: dict[str, float], live: dict[str, float], best: float | None, args: GateArguments
) -> str | None:
    """Returns the problem of the sampled answers, or None.

    Args:
        live: measurements of the live weights.
        best: highest share of correct answers of an accepted version.
    """
    one = 1 / measurements["answers"]
    for name, what in SHARES.items():
        if measurements[name] > live[name] + max(WORSE, one):
            return (
                f"{measurements[name]:.0%} of the answers {what}, compared with {live[name]:.0%} for "
                "the live weights"
            )
    least, most = lengths_allowed(live)
    error, live_error = (of.get("length_error", math.inf) for of in (measurements, live))
    least -= ERRORS * math.hypot(error, LENGTHS[0] * live_error)
    most += ERRORS * math.hypot(error, LENGTHS[1] * live_error)
    if not least <= measurements["length"] <= most:
        return (
            f"answers have {measurements['length']:.0f} tokens on average, compared with "
            f"{live['length']:.0f} for the live weights"
        )
    by_chance = ERRORS * math.hypot(*(of.get("surprise_error", math.inf) for of in (measurements, live)))
    if not abs(measurements["surprise"] - live["surprise"]) <= max(SURPRISE, by_chance):
        return (
            f"the mean surprise of the candidate's answers is {measurements['surprise']:.2g} nats "
            f"per token, compared with {live['surprise']:.2g} for the live weights"
        )
    return too_few_right(measurements, best, args)


def lengths_allowed(live: dict[str, float]) -> tuple[float, float]:
    """Returns bounds of the mean answer length in tokens.

    They are `LENGTHS` relative to live answers or to the hinted teacher's (`taught_length`, if known),
    extended to the length of liked answers (`liked_length`), because a preference may make all answers that
    long.
    """
    lengths = live["length"], live.get("taught_length", live["length"])
    least, most = min(lengths) * LENGTHS[0], max(lengths) * LENGTHS[1]
    liked = live.get("liked_length", live["length"])
    return min(least, liked), max(most, liked)


def too_few_obeyed(
    now: float,
    live: float,
    reference: float,
    args: GateArguments,
    reference_error: float,
    error: float = 0.0,
    live_error: float = 0.0,
) -> str | None:
    """Returns the reason if too few explicit requests were obeyed.

    An update that obeys at least as many as the live weights always passes, because it may be a recovery.

    Args:
        now, live, reference: shares of the candidate, the live weights and the reference version.
        reference_error: standard error of the difference between `now` and `reference`.
        error, live_error: standard errors of `now` and `live`. All errors count in the update's favour.
    """
    floor = args.gate_min_obeyed * reference
    if now + math.hypot(error, reference_error) >= floor or now + math.hypot(error, live_error) >= live:
        return None
    return (
        f"{now:.0%} of the explicit requests are obeyed (live weights: {live:.0%}, reference version: "
        f"{reference:.0%})"
    )


def too_few_wishes(now: Outcomes, live: Outcomes, reference: Outcomes, args: GateArguments) -> str | None:
    """Returns the reason if fewer requests were obeyed than the minimum share of the reference version's."""
    shares = share(now), share(live), share(reference, list(now))
    return too_few_obeyed(*shares, args, flips(reference, now))


def lost_wishes(now: Outcomes, live: Outcomes, reference: Outcomes, args: GateArguments) -> str | None:
    """Returns the reason if too many explicit requests were lost, by the minimum or by the paired test."""
    return too_few_wishes(now, live, reference, args) or lost_more_wishes(now, live, reference, args)


def lost_more_wishes(now: Outcomes, live: Outcomes, reference: Outcomes, args: GateArguments) -> str | None:
    """Returns the reason if the paired test of explicit requests fails.

    An update that obeys at least as many as the live weights passes.
    """
    if share(now) >= share(live):
        return None
    return lost_more("explicit requests are no longer obeyed", reference, now, "wish", args)


def lost_more(what: str, reference: Outcomes, now: Outcomes, part: str, args: GateArguments) -> str | None:
    """Returns the reason if the paired test against the reference version fails; `part` is a key of `SPLIT`."""
    if not is_worse(reference, now, SPLIT[part] * args.gate_false_alarms):
        return None
    lost, gained = lost_and_gained(reference, now)
    return (
        f"{lost} {what}, in contrast to an earlier version, and {gained} improved; the "
        f"probability of this by chance is {chance_of(lost, gained):.2g}"
    )


def lost_facts(lost: int, asked: int, args: GateArguments) -> str | None:
    """Returns the reason if more known facts were lost than small changes flip by chance."""
    chance = at_least(lost, asked, CHANCE)
    if chance > SPLIT["fact"] * args.gate_false_alarms:
        return None
    return (
        f"{lost} of {asked} known facts are answered incorrectly; the probability of this by chance "
        f"is {chance:.2g}"
    )


def too_few_right(measurements: dict[str, float], best: float | None, args: GateArguments) -> str | None:
    if "right" in measurements and best is not None and measurements["right"] < best - args.gate_max_wrong:
        return (
            f"{measurements['right']:.0%} of the questions are answered correctly (best version: {best:.0%})"
        )
    return None


def largest_change(accepted: Sequence[float], most: float) -> float:
    """Returns the limit of the next update's relative change: `most`, or less if all accepted changes were
    small.

    Updates without any change are ignored.
    """
    moved = [change for change in accepted if change > 0][-WINDOW:]
    return min(most, FACTOR * max(moved)) if len(moved) >= ENOUGH else most


def largest_kl(measurements: dict[str, float], args: GateArguments) -> float:
    """Returns the limit of an update's KL in nats per token: --gate-max-kl, or more towards a hinted teacher.

    `teacher_kl`, if measured, is the KL from the live weights to their hinted teacher, so the distance of the
    requested habit. For a distant teacher, a share of it is allowed.
    """
    return max(
        args.gate_max_kl, kl_of_near_teacher(measurements, args), TEACHER_SHARE * _teacher_kl(measurements)
    )


def kl_of_near_teacher(measurements: dict[str, float], args: GateArguments) -> float:
    """Returns the KL in nats per token that an update may use towards the hinted teacher; 0 if not measured."""
    return min(_teacher_kl(measurements), NEAR_TEACHER * args.gate_max_kl)


def _teacher_kl(measurements: dict[str, float]) -> float:
    taught = measurements.get("teacher_kl", 0.0)
    return taught if math.isfinite(taught) else 0.0
