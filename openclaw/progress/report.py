"""Computes the rows of a report.

Each measure has three values: before learning, now, and before learning with all preferences in the prompt.

The summary is that of C3PO (Stephan et al. 2024, arXiv 2402.10893). h is 1 if a reply has the requested form now but
did not before, -1 in the reverse case, else 0. S_in is the mean of h on held-out prompts, S_out the mean of |h| on
unrelated prompts, and S = (S_in + 1 - S_out) / 2.
"""

from __future__ import annotations

import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from openclaw.common.wish_forms import forms_of
from openclaw.progress.asking import Answers
from openclaw.progress.forms import OPPOSITES, obeys, pleases
from openclaw.progress.prompts import PLACES, Group, Item
from openclaw.progress.replies import (
    Reply,
    distinct_2,
    opening,
    repeats_itself,
    rouge_l,
    self_rouge_l,
    word_count,
)
from openclaw.progress.statistics import mcnemar, mean_interval, wilson

Interval = tuple[float, float] | None
PLACE_NAMES = {
    "question": "in the question",
    "system": "in the system message",
    "complaint": "as a complaint",
}


@dataclass(frozen=True)
class Wish:
    """A preference of a person. `forms`: its known forms, possibly none."""

    text: str

    @property
    def forms(self) -> tuple[str, ...]:
        return forms_of(self.text)


@dataclass(frozen=True)
class Row:
    """One measure.

    Attributes:
        name: stable identifier, for programs.
        label: display name.
        kind: `share` from 0 to 1, or `number`.
        before, now, prompted: values; None if unknown. `prompted`: version 0 with all preferences in the prompt.
        interval: 95 % interval of `now`.
        count: number of prompts.
        p: exact McNemar test of now against before, for shares.
    """

    name: str
    label: str
    kind: str
    before: float | None
    now: float | None
    prompted: float | None
    interval: Interval
    count: int
    p: float | None = None


@dataclass(frozen=True)
class Measured:
    """The replies from which rows are computed.

    `before`: None if unknown. `prompted`: None without preferences.
    """

    items: Sequence[Item]
    before: Answers | None
    now: Answers
    prompted: Answers | None

    def of(self, *groups: Group) -> list[Item]:
        """Returns the prompts of these classes that have a reply in each known set of replies."""
        known = [one for one in (self.before, self.now, self.prompted) if one is not None]
        return [item for item in self.items if item.group in groups and all(item.id in one for one in known)]

    def share(
        self, name: str, label: str, items: Sequence[Item], condition: Callable[[Item, Reply], bool]
    ) -> Row | None:
        """Returns the share of replies for which `condition` holds; None without prompts."""
        if not items:
            return None

        def hits(answers: Answers | None) -> list[bool] | None:
            return None if answers is None else [condition(item, answers[item.id]) for item in items]

        before, now, prompted = hits(self.before), hits(self.now) or [], hits(self.prompted)
        p = None if before is None else mcnemar(before, now)
        old, with_wishes = (None if one is None else sum(one) / len(one) for one in (before, prompted))
        interval = wilson(sum(now), len(now))
        return Row(name, label, "share", old, sum(now) / len(now), with_wishes, interval, len(items), p)

    def changed(self, name: str, label: str, items: Sequence[Item], wishes: Sequence[Wish]) -> Row | None:
        """Returns the share of replies that have the form of a preference now but did not before, or the reverse."""
        before = self.before
        if before is None or not any(wish.forms for wish in wishes):
            return None

        def is_changed(item: Item, reply: Reply) -> bool:
            old = before[item.id]
            return any(
                pleases(wish.forms, reply) != pleases(wish.forms, old) for wish in wishes if wish.forms
            )

        row = self.share(name, label, items, is_changed)
        return None if row is None else Row(**{**asdict(row), "before": None, "p": None})

    def number(
        self, name: str, label: str, items: Sequence[Item], of: Callable[[Reply], float | None]
    ) -> Row | None:
        """Returns the mean of a measure of single replies; None if it is undefined for all replies."""

        def values(answers: Answers | None) -> list[float]:
            values_of = [of(answers[item.id]) for item in items] if answers is not None else []
            return [one for one in values_of if one is not None]

        before, now, prompted = values(self.before), values(self.now), values(self.prompted)
        if not now:
            return None
        old, with_wishes = (statistics.fmean(one) if one else None for one in (before, prompted))
        mean = statistics.fmean(now)
        return Row(name, label, "number", old, mean, with_wishes, mean_interval(now), len(now))

    def whole(
        self, name: str, label: str, items: Sequence[Item], of: Callable[[Sequence[str]], float | None]
    ) -> Row | None:
        """Returns a measure of all replies together; None if it is undefined."""

        def value(answers: Answers | None) -> float | None:
            return None if answers is None else of([answers[item.id].text for item in items])

        now = value(self.now)
        before, prompted = value(self.before), value(self.prompted)
        return None if now is None else Row(name, label, "number", before, now, prompted, None, len(items))


def rows_of(measured: Measured, wishes: Sequence[Wish]) -> list[Row]:
    """Returns all rows, in display order."""
    rows = [_wish_row(measured, numbers, forms) for forms, numbers in _numbered(wishes)]
    rows += _explicit_rows(measured, wishes)
    others, near, facts = measured.of("unrelated"), measured.of("near_scope"), measured.of("capability")
    rows.append(measured.share("facts", "facts right", facts, _is_right))
    rows.append(measured.changed("near_changed", "follow-ups, advice: form changed", near, wishes))
    rows.append(
        measured.changed("unrelated_changed", "code, translation, poems: form changed", others, wishes)
    )
    rows.append(_similarity_to_before(measured, others))
    plain = measured.of("in_scope")
    rows.append(_new_opening(measured, plain))
    rows.append(
        measured.share(
            "repeating", "replies that repeat themselves", plain, lambda _, reply: repeats_itself(reply.text)
        )
    )
    rows.append(measured.whole("distinct_2", "variety (distinct-2)", plain, distinct_2))
    rows.append(measured.whole("self_rouge_l", "likeness of replies (self-ROUGE-L)", plain, self_rouge_l))
    rows.append(measured.number("words", "words a reply", plain, lambda reply: float(word_count(reply.text))))
    rows.append(measured.number("log_prob", "log-prob a token, nats", plain, lambda reply: reply.log_prob))
    rows.append(measured.number("entropy", "entropy a token, nats", plain, lambda reply: reply.entropy))
    return [row for row in rows if row is not None]


def summary_of(measured: Measured, wishes: Sequence[Wish]) -> dict[str, float]:
    """Returns `S_in`, `S_out` and `S` over the preferences with a known form; {} if they cannot be computed."""
    before = measured.before
    forms = list({wish.forms for wish in wishes if wish.forms})
    inside, outside = measured.of("in_scope"), measured.of("unrelated")
    if before is None or not forms or not inside or not outside:
        return {}

    def h(item: Item, forms: tuple[str, ...]) -> int:
        return int(pleases(forms, measured.now[item.id])) - int(pleases(forms, before[item.id]))

    s_in = statistics.fmean(h(item, one) for item in inside for one in forms)
    s_out = statistics.fmean(abs(h(item, one)) for item in outside for one in forms)
    return {"S_in": s_in, "S_out": s_out, "S": (s_in + 1 - s_out) / 2}


def _numbered(wishes: Sequence[Wish]) -> list[tuple[tuple[str, ...], list[int]]]:
    """Returns the known forms, each with the numbers of its preferences; preferences without a known form come last."""
    numbers: dict[tuple[str, ...], list[int]] = {}
    for number, wish in enumerate(wishes, 1):
        numbers.setdefault(wish.forms, []).append(number)
    return sorted(numbers.items(), key=lambda one: not one[0])


def _wish_row(measured: Measured, numbers: Sequence[int], forms: tuple[str, ...]) -> Row | None:
    """Returns the share of held-out replies that have the forms of a preference.

    Without a known form, a reply counts if it is more similar (ROUGE-L) to the reply of version 0 with the preferences
    in the prompt than to the one without them. Prompts for which both replies are equal are skipped.
    """
    plain = measured.of("in_scope")
    name = f"wish_{numbers[0]}"
    label = f"wish {', '.join(map(str, numbers))} held out ({', '.join(forms) or 'by likeness'})"
    if forms:
        return measured.share(name, label, plain, lambda item, reply: pleases(forms, reply))
    before, prompted = measured.before, measured.prompted
    if before is None or prompted is None:
        return None
    prompted_items = [item for item in plain if before[item.id].text != prompted[item.id].text]

    def is_nearer(item: Item, reply: Reply) -> bool:
        similarity = rouge_l(reply.text, prompted[item.id].text)
        return similarity > rouge_l(reply.text, before[item.id].text)

    return measured.share(name, label, prompted_items, is_nearer)


def _explicit_rows(measured: Measured, wishes: Sequence[Wish]) -> list[Row | None]:
    """Returns rows for explicit requests: those opposite to the preferences, by place, then all others."""
    against = {pole for wish in wishes for form in wish.forms for pole in OPPOSITES.get(form, ())}
    items = measured.of("opposite")

    def obeyed(item: Item, reply: Reply) -> bool:
        return obeys(item.pole, item.form, reply)

    rows = []
    for place in PLACES:
        here = [item for item in items if item.place == place and item.pole in against]
        rows.append(measured.share(f"opposite_{place}", f"opposite wish {PLACE_NAMES[place]}", here, obeyed))
    rest = [item for item in items if item.pole not in against]
    return [*rows, measured.share("explicit", "other explicit wishes obeyed", rest, obeyed)]


def _new_opening(measured: Measured, items: Sequence[Item]) -> Row | None:
    """Returns the share of replies that start with the word whose share has grown most; None without earlier replies.

    Unwanted habits are often visible there.
    """
    if measured.before is None or not items:
        return None
    before, now = (
        Counter(opening(answers[item.id].text) for item in items)
        for answers in (measured.before, measured.now)
    )
    grown = max(sorted(now), key=lambda first: now[first] - before[first])
    label = f"replies that begin with: {grown or 'nothing'}"
    return measured.share("opening", label, items, lambda _, reply: opening(reply.text) == grown)


def _similarity_to_before(measured: Measured, items: Sequence[Item]) -> Row | None:
    """Returns the similarity (ROUGE-L) of replies to unrelated prompts now and before."""
    before = measured.before
    if before is None or not items:
        return None

    def to_old(answers: Answers) -> list[float]:
        return [rouge_l(answers[item.id].text, before[item.id].text) for item in items]

    now = to_old(measured.now)
    prompted = None if measured.prompted is None else statistics.fmean(to_old(measured.prompted))
    label = "the same: like before (ROUGE-L)"
    mean = statistics.fmean(now)
    return Row("unrelated_like", label, "number", 1.0, mean, prompted, mean_interval(now), len(items))


def _is_right(item: Item, reply: Reply) -> bool:
    """Returns whether a reply contains the correct answer as whole words; case and commas in numbers are ignored."""
    expected = item.answer or ""
    text = re.sub(r"(?<=\d),(?=\d{3})", "", reply.text)
    return re.search(rf"(?<!\w){re.escape(expected)}(?!\w)", text, re.IGNORECASE) is not None


def as_json(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) for row in rows]
