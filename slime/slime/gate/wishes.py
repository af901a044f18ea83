"""Abilities of the initial model that every candidate must keep: obedience to explicit requests, and pool
facts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from slime.gate.history import GateHistory
from slime.gate.interruptible import Tries
from slime.gate.likelihood import FACT, WISH, key, lasting
from slime.gate.limits import lost_facts, lost_more_wishes, lost_wishes, too_few_obeyed, too_few_wishes
from slime.gate.paired import Outcomes, flips, lost_and_gained, share
from slime.gate.sampled import Tried, is_obeyed, is_right
from slime.types import Sample
from slime.weights.update import CandidateRejected
from slime.weights.versions import WeightVersion

if TYPE_CHECKING:
    from slime.flags import Arguments

WISHES, FACTS = "wishes", "facts"
FIRST = 32
"""Minimum number of requests per test. Usually half of all are tested, in rotation, unless some are lost."""
LOST = 2
"""Net number of lost requests in the first half from which the other half is tested too."""
DRAWN = 16
"""Number of pool facts per test, different ones each time."""
SAMPLED, TEMPERATURE = 3, 0.7
"""Number of sampled answers per request, and their temperature, when a candidate that seems worse is tested
again. Small changes flip a small model's greedy answers without a real loss: after six steps SmolLM2-135M
obeyed 34 of 65 requests instead of 37, but 35 instead of 36 by sampled answers (lab/findings/dreaming.md)."""
LEAST = 8
"""Minimum number of known facts for testing the rest of the pool."""


class Asks(Protocol):
    """Interface for sending prompts to the live weights and to a candidate: `slime.gate.answers.AnswerCheck`."""

    args: Arguments
    history: GateHistory
    live_answers: dict[str, Tried]
    candidate_answers: dict[str, Tried]

    def ask(
        self, asked: Sequence[Sample], weights: WeightVersion, live: WeightVersion, engines: Sequence[Tries]
    ) -> bool: ...

    def tried(
        self,
        engines: Sequence[Tries],
        weights: WeightVersion,
        asked: Sequence[Sample],
        temperature: float = 0.0,
    ) -> dict[str, Tried] | None: ...


def look_at_wishes(
    check: Asks,
    wishes: Sequence[Sample],
    weights: WeightVersion,
    live: WeightVersion,
    engines: Sequence[Tries],
    measurements: dict[str, float],
) -> None:
    """Tests half of the requests, and all if the candidate obeys fewer of them than reference or live
    version.

    If too many seem lost, the live weights are asked again, because their answers may be of an earlier
    version. Too low counts are repeated with sampled answers.

    Raises:
        CandidateRejected: more requests are lost than the limits allow.
    """
    asked = first_half(check, wishes, weights.version)
    if not asked or not check.ask(asked, weights, live, engines):
        return
    if len(asked) < len(wishes) and seems_worse(check, asked):
        asked = wishes
        if not check.ask(asked, weights, live, engines):
            return
    now = outcomes(asked, check.candidate_answers)
    measurements |= {"obeyed": share(now), "wishes": float(len(asked))}
    if len(asked) < len(wishes):
        return
    before = outcomes(asked, check.live_answers)
    reference = check.history.compared_with(WISH, before)
    if lost_wishes(now, before, reference, check.args) is None:
        return
    check.live_answers |= check.tried(engines, live, asked) or {}
    before = outcomes(asked, check.live_answers)
    reason = lost_more_wishes(now, before, reference, check.args)
    if reason is None and too_few_wishes(now, before, reference, check.args) is not None:
        reason = too_few_sampled(check, asked, weights, live, engines, reference, measurements)
    if reason is not None:
        raise CandidateRejected(reason, WISHES)


def too_few_sampled(
    check: Asks,
    asked: Sequence[Sample],
    weights: WeightVersion,
    live: WeightVersion,
    engines: Sequence[Tries],
    reference: Outcomes,
    measurements: dict[str, float],
) -> str | None:
    """Returns the reason if the candidate obeys too few requests after those with a changed answer are
    sampled again.

    None if enough are obeyed, within the standard error of so few answers, or if no engine responds.
    """
    before, now = outcomes(asked, check.live_answers), outcomes(asked, check.candidate_answers)
    turned = [one for one in asked if before[lasting(one)] != now[lasting(one)]]
    same = sum(now[lasting(one)] for one in asked if one not in turned)
    shares, errors = [], []
    for version in (live, weights):
        obeyed = sampled(check, turned, version, engines)
        if obeyed is None:
            return None
        shares.append((same + obeyed[0]) / len(asked))
        errors.append(obeyed[1] / len(asked))
    measurements |= {"obeyed_sampled": shares[1], "obeyed_error": errors[1]}
    share_of_reference, reference_error = share(reference, list(now)), flips(reference, now)
    return too_few_obeyed(
        shares[1], shares[0], share_of_reference, check.args, reference_error, errors[1], errors[0]
    )


def sampled(
    check: Asks, asked: Sequence[Sample], weights: WeightVersion, engines: Sequence[Tries]
) -> tuple[float, float] | None:
    """Returns the mean number of requests obeyed by sampled answers, and its standard error; None without an
    engine."""
    obeyed: Counter[str] = Counter()
    for _ in range(SAMPLED):
        answers = check.tried(engines, weights, asked, TEMPERATURE)
        if answers is None:
            return None
        obeyed.update(outcomes(asked, answers))
    rates = [count / SAMPLED for count in obeyed.values()]
    return sum(rates), math.sqrt(sum(rate * (1 - rate) for rate in rates) / (SAMPLED - 1))


def first_half(check: Asks, wishes: Sequence[Sample], version: int) -> Sequence[Sample]:
    """Returns every second request (the others for the next version); all if there are few or no earlier
    outcomes."""
    known = check.history.reference.get(WISH, {})
    if len(wishes) < 2 * FIRST or any(lasting(one) not in known for one in wishes):
        return wishes
    return wishes[version % 2 :: 2]


def seems_worse(check: Asks, asked: Sequence[Sample]) -> bool:
    """Returns whether so many requests are lost that all must be tested."""
    now = outcomes(asked, check.candidate_answers)
    for before in (check.history.reference.get(WISH, {}), outcomes(asked, check.live_answers)):
        lost, gained = lost_and_gained(before, now)
        if lost - gained >= LOST:
            return True
    return False


def look_at_facts(
    check: Asks,
    pool: Sequence[Sample],
    weights: WeightVersion,
    live: WeightVersion,
    engines: Sequence[Tries],
    measurements: dict[str, float],
) -> None:
    """Tests the candidate on some of the facts that the initial model knew.

    Raises:
        CandidateRejected: it has lost more than by chance, and more than the live weights.
    """
    asked = drawn([one for one in pool if check.history.known.get(lasting(one))], weights.version)
    answers = check.tried(engines, weights, asked) if len(asked) >= LEAST else None
    if not answers:
        return
    lost = count_lost(asked, answers)
    measurements |= {"facts_kept": 1 - lost / len(asked), "facts": float(len(asked))}
    reason = lost_facts(lost, len(asked), check.args)
    if reason is None:
        return
    before = check.tried(engines, live, asked)
    if before is not None and count_lost(asked, before) < lost:
        raise CandidateRejected(reason, FACTS)


def drawn(known: Sequence[Sample], version: int) -> Sequence[Sample]:
    """Returns the next facts, in an order unrelated to their topics."""
    mixed = sorted(known, key=lasting)
    return [mixed[(version * DRAWN + at) % len(mixed)] for at in range(min(DRAWN, len(mixed)))]


def count_lost(facts: Sequence[Sample], answers: Mapping[str, Tried]) -> int:
    return sum(not is_right(answers[key(one)].text, str(one.label)) for one in facts)


def outcomes(wishes: Sequence[Sample], answers: Mapping[str, Tried]) -> Outcomes:
    """Returns whether each answered request is obeyed, by its permanent key; `answers` is keyed by prompt
    key."""
    return {
        lasting(one): is_obeyed(answers[key(one)].text, str(one.label))
        for one in wishes
        if key(one) in answers
    }


def unknown_facts(check: Asks, samples: Sequence[Sample]) -> list[Sample]:
    """Returns the pool facts that were never asked."""
    return [
        one for one in samples if one.metadata.get("gate") == FACT and lasting(one) not in check.history.known
    ]
