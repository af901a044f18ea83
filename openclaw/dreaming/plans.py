"""Plans the answers to sample: dreams, held-out prompts, facts and anchors, with their prompts as token ids."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from openclaw.common.plain_sentences import Pole, plain_sentences
from openclaw.dreaming import anchors, contrasts
from openclaw.dreaming.anchors import AnchorPrompt
from openclaw.dreaming.asking import Answer, Asked
from openclaw.dreaming.measures import KEEP
from openclaw.dreaming.settings import DreamArguments
from openclaw.dreaming.texts import Place, Prompt
from openclaw.dreaming.wishes import Wish
from openclaw.errors import HintError
from openclaw.formats.families import TemplateOptions
from openclaw.methods.hinted_prompt import HintedPrompts, with_hint
from openclaw.store.dreams import Dream, DreamKind
from openclaw.types import Message

LONG = 4 / 3
"""Factor of --dream-tokens: longest answer of an anchor that asks for long answers."""
HELD_OUT = 24
"""Number of everyday prompts, the last ones of a language, that are excluded from dreams."""
LOOKS = 16
"""Number of held-out prompts that measure how far a wish is learned."""
CONTRARY_LOOKS: Mapping[Place, int] = {"question": 6, "system": 4, "complaint": 6}
"""Number of held-out requests for the opposite, by their place, that test whether such requests are still obeyed."""
MOST_CONTRASTED = 40
"""Most questions of a wish's dreams that are combined with requests for the opposite."""
FACT_TOKENS, HELD_FACT_TOKENS = 32, 48
"""Longest answer to a question with a known answer, in tokens: to check it, and as an anchor."""


@dataclass(frozen=True)
class Plan:
    """An answer to sample. Answers are greedy for facts, and for held-out prompts whose form is checked.

    Attributes:
        dream: the record; without its answer until it is `answered`.
        longest: most tokens of the answer.
        poles: the forms that the answer to a dream or a held-out prompt should have, if they are certain.
        also: further anchors with the same answer.
    """

    dream: Dream
    longest: int
    poles: tuple[Pole, ...] = ()
    also: tuple[Dream, ...] = ()

    @property
    def asked(self) -> Asked:
        """The request to the engine. A held-out prompt does not contain the wish.

        Reasoning never follows a prompt with the wish: it would mention the wish, and the policy, which reads it in the
        trained context, would learn to obey a wish that it can read."""
        is_look = self.dream.kind == "look"
        ids = self.dream.prompt_ids if is_look else self.dream.taught_ids
        is_fact = "fact" in (self.dream.kind, self.dream.theme)
        is_greedy = is_fact or (is_look and bool(self.poles))
        return Asked(ids, self.longest, is_greedy, reasoned_ids=self.dream.prompt_ids)

    def answered(self, answer: Answer) -> Plan:
        """Returns the plan with an answer. Reasoning before it becomes part of both prompts, so it is not trained."""

        def with_answer(one: Dream) -> Dream:
            return replace(
                one,
                prompt_ids=one.prompt_ids + answer.reasoning,
                taught_ids=one.taught_ids + answer.reasoning,
                completion_ids=answer.ids,
                version=answer.version,
            )

        return replace(self, dream=with_answer(self.dream), also=tuple(with_answer(one) for one in self.also))


@dataclass(frozen=True)
class Planner:
    """Renders prompts for one model.

    Attributes:
        options: options of the chat template.
    """

    prompts: HintedPrompts
    settings: DreamArguments
    options: TemplateOptions

    def dreams(self, wish: Wish, keep: int, known: Sequence[str]) -> list[Plan]:
        """Plans dreams of a wish, enough that `keep` answers are kept. The least used prompts come first.

        Args:
            known: the prompt's id of each earlier dream.
        """
        some = _in_language(wish.language)
        order = sorted(some[:-HELD_OUT], key=lambda prompt: known.count(prompt.id))
        chosen = itertools.islice(itertools.cycle(order), round(keep / KEEP))
        return [
            plan for prompt in chosen for plan in self._of("dream", prompt, wish, self.settings.dream_tokens)
        ]

    def looks(self, wish: Wish, rollout_id: int) -> list[Plan]:
        """Plans answers to held-out prompts; each rollout uses other ones."""
        some = _in_language(wish.language)
        held = some[-HELD_OUT:]
        first = rollout_id * LOOKS % len(held)
        chosen = [held[(first + number) % len(held)] for number in range(min(LOOKS, len(held)))]
        return [plan for one in chosen for plan in self._of("look", one, wish, self.settings.dream_tokens)]

    def contrary_looks(self, wish: Wish) -> list[Plan]:
        """Plans answers to held-out requests for the opposite, the same in each rollout; none without certain
        poles."""
        questions = _in_language(wish.language)[-HELD_OUT:]
        plans: list[Plan] = []
        for pole in wish.poles:
            for prompt in contrasts.held_out_prompts(questions, pole, wish.language, CONTRARY_LOOKS):
                for plan in self._anchor(prompt):
                    look = replace(
                        plan.dream, kind="look", person=wish.person, wish=wish.text, turn_ids=wish.turn_ids
                    )
                    plans.append(replace(plan, dream=look, poles=(pole,)))
        return plans

    def facts(self, wish: Wish) -> list[Plan]:
        """Plans answers to questions with known answers, each with the wish and without it."""
        return [
            plan
            for one in anchors.asked_with_wishes(wish.language)
            for is_taught in (True, False)
            for plan in self._of("fact", one, wish, FACT_TOKENS, is_taught)
        ]

    def anchors(
        self,
        themes: Mapping[str, float],
        poles: Collection[str],
        language: str,
        bank: Collection[str],
        count: int,
    ) -> list[Plan]:
        """Plans up to `count` anchors that are not in the bank."""
        return [
            plan
            for prompt in anchors.next_anchors(themes, language, bank, count, poles)
            for plan in self._anchor(prompt)
        ]

    def contrasts(self, wish: Wish, dreams: Sequence[Dream], bank: Collection[str]) -> list[Plan]:
        """Plans an anchor that asks for the opposite, for each question of a wish's dreams, with further wordings of the
        request. Questions that have such an anchor in the bank are skipped, and so are all after the first
        `MOST_CONTRASTED`: their answers are long. A wish without certain poles has none.

        Args:
            dreams: dreams of the wish.
            bank: ids of the existing anchors.
        """
        asked = {one.partition("-")[2] for one in bank}
        questions = {one.id: one for one in anchors.dreamt_prompts()}
        plans: list[Plan] = []
        for dream in itertools.islice({one.item: one for one in dreams}.values(), MOST_CONTRASTED):
            question = questions.get(dream.item)
            if question is None or dream.item in asked:
                continue
            answer = self.prompts.text(dream.completion_ids)
            for pole in wish.poles:
                prompts = contrasts.prompts_of(question.text, question.id, answer, pole, wish.language)
                made = [plan for prompt in prompts for plan in self._anchor(prompt)]
                if made:
                    plans.append(replace(made[0], also=tuple(plan.dream for plan in made[1:])))
        return plans

    def held_facts(self, language: str, bank: Collection[str], count: int) -> list[Plan]:
        """Plans up to `count` anchors that are questions with known answers and not in the bank."""
        plans: list[Plan] = []
        for one in anchors.next_facts(language, bank, count):
            messages: tuple[Message, ...] = ({"role": "user", "content": one.text},)
            plans += self._anchor(AnchorPrompt(one.id, anchors.FACT, False, messages), HELD_FACT_TOKENS)
        return plans

    def _anchor(self, prompt: AnchorPrompt, longest: int | None = None) -> list[Plan]:
        """Returns one plan; [] if the model's template cannot render the prompt, or the prompt is too long.

        longest: most tokens of the answer, if it is not `longest_of` the prompt."""
        longest = longest or longest_of(prompt.is_long, self.settings)
        try:
            ids = self.prompts.asked(prompt.messages, self.options, longest)
        except HintError:
            return []
        made = Dream(
            kind="anchor", item=prompt.id, theme=prompt.theme, prompt_ids=ids, taught_ids=ids,
            completion_ids=[], version=0,
        )  # fmt: skip
        return [Plan(made, longest)]

    def _of(
        self, kind: DreamKind, prompt: Prompt, wish: Wish, longest: int, is_taught: bool = True
    ) -> list[Plan]:
        """Returns one plan; [] if the model's template cannot render the prompt, or the prompt is too long.

        is_taught: the teacher's prompt contains the wish."""
        messages = [{"role": "user", "content": prompt.text}]
        try:
            plain = self.prompts.asked(messages, self.options, longest)
            hinted = _with_wish(prompt, wish) if is_taught else messages
            taught = self.prompts.asked(hinted, self.options, longest)
        except HintError:
            return []
        made = Dream(
            kind=kind, item=prompt.id, person=wish.person, wish=wish.text, turn_ids=wish.turn_ids,
            prompt_ids=plain, taught_ids=taught, completion_ids=[], version=0,
        )  # fmt: skip
        return [Plan(made, longest, wish.poles if kind in ("dream", "look") else ())]


def longest_of(is_long: bool, settings: DreamArguments) -> int:
    """Returns the most tokens of an anchor's answer. `is_long`: its prompt asks for a long one."""
    return round(settings.dream_tokens * (LONG if is_long else 1))


def _with_wish(prompt: Prompt, wish: Wish) -> list[Message]:
    """Returns the teacher's prompt. A plain sentence stands before the question; if it came after it, a small model would
    answer the sentence (lab/findings/dreaming.md)."""
    if not wish.poles:
        return with_hint([{"role": "user", "content": prompt.text}], wish.text)
    rng = random.Random(prompt.id)
    plain = " ".join(rng.choice(plain_sentences(pole, prompt.language)) for pole in wish.poles)
    return [{"role": "user", "content": f"{plain}\n\n{prompt.text}"}]


def _in_language(language: str) -> list[Prompt]:
    """Returns everyday prompts in a language, in the order of their use. If there are few, English ones follow, because a
    model that does not know a language cannot learn in it."""
    own = [one for one in anchors.dreamt_prompts() if one.language == language]
    english = [one for one in anchors.dreamt_prompts() if one.language == "en"]
    return own if len(own) > 4 * HELD_OUT else [*own, *english]
