"""Checks of sampled answers: their form, repeated words of a wish, known facts."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from openclaw.common.plain_sentences import Pole, all_plain_sentences
from openclaw.dreaming import contrasts, measures
from openclaw.dreaming.plans import Plan, longest_of
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import answers_of
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.store.dreams import Dream

log = logging.getLogger(__name__)


class Checks:
    """Checks of the answers of one model."""

    def __init__(self, prompts: HintedPrompts, settings: DreamArguments) -> None:
        self._prompts, self._settings = prompts, settings

    def has_form(self, poles: Sequence[Pole], dream: Dream, longest: int) -> bool:
        """Returns whether an answer of at most `longest` tokens has all requested forms."""
        answer = self._prompts.text(dream.completion_ids)
        is_cut = len(dream.completion_ids) >= longest
        return all(measures.shows(pole, answer, is_cut) for pole in poles)

    def obeys(self, look: Dream) -> bool:
        """Returns whether an answer has the form that its own prompt asks for, the opposite of a wish."""
        answer, tokens = self._prompts.text(look.completion_ids), len(look.completion_ids)
        return contrasts.obeys(
            look.theme, answer, tokens, longest_of(contrasts.asks_for_long(look.theme), self._settings)
        )

    def quotes(self, dream: Dream) -> bool:
        """Returns whether an answer repeats the wish that its teacher reads."""
        answer = self._prompts.text(dream.completion_ids)
        return measures.quotes(answer, dream.wish or "", *all_plain_sentences())

    def fact(self, fact: Dream) -> Dream:
        """Returns a fact with gain 1 if its answer contains the right one."""
        answer_text = self._prompts.text(fact.completion_ids)
        answers = answers_of()[fact.item]
        return dataclasses.replace(
            fact, gain=float(any(measures.names(answer_text, answer) for answer in answers))
        )

    def obedient(self, plans: Sequence[Plan]) -> list[Dream]:
        """Returns the dreams among answers, without those that lack the form requested by a plain sentence. Logs each
        wish that the teacher does not obey at all."""
        by_wish: dict[measures.About, list[Plan]] = {}
        for plan in plans:
            if plan.dream.kind == "dream":
                by_wish.setdefault(measures.about_of(plan.dream), []).append(plan)
        kept: list[Dream] = []
        for of_wish in by_wish.values():
            left = [plan.dream for plan in of_wish if self.has_form(plan.poles, plan.dream, plan.longest)]
            if len(left) >= measures.OBEYED * len(of_wish):
                kept += left
            else:
                log.warning(
                    "the model rarely follows the wish of turn %s, even if a plain sentence asks for it (%d of %d "
                    "answers): no dreams are made of it",
                    of_wish[0].dream.turn_ids[-1],
                    len(left),
                    len(of_wish),
                )
        return kept
