"""Limits beyond which a measurement rejects an update. Pure functions; each returns the reason in words, or None."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from slime.gate.paired import CHANCE, SPLIT, Outcomes, at_least, chance_of, is_worse, lost_and_gained, share

if TYPE_CHECKING:
    from slime.flags.gate import GateArguments

WORSE = 0.1
"""By how much a share of answers that are wrong in form may rise over that of the live weights; of few answers one
always may."""
SHARES = {
    "empty": "are empty",
    "endless": "do not end",
    "repeating": "repeat themselves",
    "other_script": "are in another script than those of the live weights",
    "same": "are one and the same",
}
LENGTHS = (1 / 3, 3.0)
"""Bounds of the mean length, in live ones."""
TEACHER_SHARE = 0.25
"""Share of the way to the hinted teacher, as KL, that one update may always take."""
NEAR_TEACHER = 5.0
"""A hinted teacher whose KL is up to so many times --gate-max-kl may be reached by one update."""
NEAR = 0.25
"""Share of a limit from which an update is looked at more closely."""
SURPRISE = 0.5
"""Nats a token by which the candidate may be surer or less sure of its greedy answers."""
FACTOR = 4.0
"""Largest ratio of the next change to the largest accepted one."""
ENOUGH = 5
"""Accepted changes from which the bound is learned."""
WINDOW = 32
"""Newest accepted changes that count."""


def bad_change(measurements: dict[str, float], accepted: Sequence[float], args: GateArguments) -> str | None:
    """Adds the bound, `most_change`, to the measurements. `accepted`: changes of earlier updates."""
    if "change" not in measurements:
        return None
    most = measurements["most_change"] = largest_change(accepted, args.gate_max_change)
    if measurements["change"] <= most:
        return None
    return f"the weights changed by {measurements['change']:.3g} of their norm, more than {most:.3g}"


def bad_likelihood(measurements: dict[str, float], args: GateArguments) -> str | None:
    """Not-a-number is never below a limit."""
    most = largest_kl(measurements, args)
    if "kl" in measurements and not measurements["kl"] <= most:
        return f"the KL to the live weights is {measurements['kl']:.3g} nats a token, more than {most:g}"
    if "liked_loss" in measurements and not measurements["liked_loss"] <= args.gate_max_canary_loss:
        return (
            f"liked answers became less likely by {measurements['liked_loss']:.3g} nats a token, "
            f"more than {args.gate_max_canary_loss:g}"
        )
    return None


def is_near(measurements: dict[str, float], args: GateArguments) -> bool:
    """Returns whether an update came near a limit of the first two stages."""
    near = measurements.get("kl", 0.0) > NEAR * largest_kl(measurements, args)
    near |= measurements.get("liked_loss", 0.0) > NEAR * args.gate_max_canary_loss
    return near or measurements.get("change", 0.0) > 2 * NEAR * measurements.get("most_change", float("inf"))


def bad_answers(
    measurements: dict[str, float], live: dict[str, float], best: float | None, args: GateArguments
) -> str | None:
    """Returns the fault of sampled answers.

    Args:
        live: the same measures of the live weights.
        best: the highest share of right answers that an accepted version had.
    """
    one = 1 / measurements["answers"]
    for name, what in SHARES.items():
        if measurements[name] > live[name] + max(WORSE, one):
            return f"{measurements[name]:.0%} of the answers {what}, of the live ones {live[name]:.0%}"
    least, most = lengths_allowed(live)
    if not least <= measurements["length"] <= most:
        return f"answers have {measurements['length']:.0f} tokens, those of the live weights {live['length']:.0f}"
    if not abs(measurements["surprise"] - live["surprise"]) <= SURPRISE:
        return (
            f"the candidate's own tokens are {measurements['surprise']:.2g} nats unlikely, "
            f"the live ones {live['surprise']:.2g}"
        )
    return too_few_right(measurements, best, args)


def lengths_allowed(live: dict[str, float]) -> tuple[float, float]:
    """Bounds of the mean length of answers, in tokens: of `LENGTHS`, in live ones or in those that the hinted teacher
    gives (`taught_length`, if it is known), and beyond them as far as the answers that people liked go (`liked_length`),
    since a wanted habit may make all answers as long as these."""
    lengths = live["length"], live.get("taught_length", live["length"])
    least, most = min(lengths) * LENGTHS[0], max(lengths) * LENGTHS[1]
    liked = live.get("liked_length", live["length"])
    return min(least, liked), max(most, liked)


def too_few_obeyed(now: float, live: float, best: float, args: GateArguments) -> str | None:
    """Returns why too few explicit wishes were obeyed. An update that obeys no fewer than the live weights passes,
    however few these are: it may be the way back."""
    if now >= min(live, args.gate_min_obeyed * best):
        return None
    return f"{now:.0%} of the explicit wishes are obeyed, by the live weights {live:.0%}, by the best version {best:.0%}"


def lost_wishes(
    now: Outcomes, live: Outcomes, reference: Outcomes, best: float, args: GateArguments
) -> str | None:
    """Returns why too many explicit wishes were lost: by the floor, or by the paired test against the reference
    version."""
    return too_few_obeyed(share(now), share(live), best, args) or lost_more_wishes(now, live, reference, args)


def lost_more_wishes(now: Outcomes, live: Outcomes, reference: Outcomes, args: GateArguments) -> str | None:
    """Returns the paired test of explicit wishes. As above, an update that obeys no fewer than the live weights
    passes."""
    if share(now) >= share(live):
        return None
    return lost_more("explicit wishes are not obeyed any more", reference, now, "wish", args)


def lost_more(what: str, reference: Outcomes, now: Outcomes, part: str, args: GateArguments) -> str | None:
    """Returns the paired test against the reference version; `part`: a key of `SPLIT`."""
    if not is_worse(reference, now, SPLIT[part] * args.gate_false_alarms):
        return None
    lost, gained = lost_and_gained(reference, now)
    return (
        f"{lost} {what} that an earlier version could do, {gained} are gained: "
        f"by chance in {chance_of(lost, gained):.2g} of updates"
    )


def lost_facts(lost: int, asked: int, args: GateArguments) -> str | None:
    """Returns why too many known facts were lost: more than the share that small changes turn over."""
    chance = at_least(lost, asked, CHANCE)
    if chance > SPLIT["fact"] * args.gate_false_alarms:
        return None
    return f"{lost} of {asked} facts that the model knew are lost: by chance in {chance:.2g} of updates"


def too_few_right(measurements: dict[str, float], best: float | None, args: GateArguments) -> str | None:
    if "right" in measurements and best is not None and measurements["right"] < best - args.gate_max_wrong:
        return (
            f"{measurements['right']:.0%} of the questions are answered right, of the best version {best:.0%}"
        )
    return None


def largest_change(accepted: Sequence[float], most: float) -> float:
    """Returns the bound of the next update's relative change: `most`, or less where the accepted ones were all small.

    Updates that changed nothing carry no information about the scale and are left out.
    """
    moved = [change for change in accepted if change > 0][-WINDOW:]
    return min(most, FACTOR * max(moved)) if len(moved) >= ENOUGH else most


def largest_kl(measurements: dict[str, float], args: GateArguments) -> float:
    """Returns the bound of an update's KL, nats a token: --gate-max-kl, or the KL of the live weights' hinted teacher
    to them (`teacher_kl`, if it was measured), which is how far the habit lies that people ask for; of a teacher that
    is far away a share of it."""
    return max(
        args.gate_max_kl, kl_of_near_teacher(measurements, args), TEACHER_SHARE * _teacher_kl(measurements)
    )


def kl_of_near_teacher(measurements: dict[str, float], args: GateArguments) -> float:
    """Returns how far, in nats a token, an update may go toward the hinted teacher; 0 if its KL was not measured."""
    return min(_teacher_kl(measurements), NEAR_TEACHER * args.gate_max_kl)


def _teacher_kl(measurements: dict[str, float]) -> float:
    taught = measurements.get("teacher_kl", 0.0)
    return taught if math.isfinite(taught) else 0.0
