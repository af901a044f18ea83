"""Models that reason before they answer: how their reasoning begins and ends, and how long it may be.

The reasoning before a sampled answer belongs to the prompts of student and teacher, and is not trained. It is sampled
after the prompt without the wish (`asking.py`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from openclaw.errors import EngineError
from openclaw.formats.reasoning import ReasoningMarks

FIRST_TOKENS = 4
"""Tokens of an answer in which a model must begin to reason: some write a line break first."""


@dataclass(frozen=True)
class Reasoning:
    """How a model reasons before each answer.

    Attributes:
        opening: ids after the prompt with which its reasoning begins; empty if the template writes them.
        close_id: the token that ends it.
        longest: most tokens after the opening.
        context_length: most tokens of prompt, reasoning and answer together.
    """

    opening: list[int]
    close_id: int
    longest: int
    context_length: int

    def room(self, prompt_tokens: int, answer_tokens: int) -> int:
        """Returns the most tokens after the opening, between such a prompt and such an answer; at least 1."""
        left = self.context_length - prompt_tokens - len(self.opening) - answer_tokens
        return max(1, min(self.longest, left))


async def reasoning_of(
    marks: ReasoningMarks | None,
    longest: int,
    context_length: int,
    prompt_ids: list[int],
    beginning: Callable[[list[int], int], Awaitable[list[int] | None]],
) -> Reasoning | None:
    """Returns how a model reasons after prompts with the same template options; None if it does not.

    A template may open the reasoning, or close it at once (disabled). Otherwise an answer to one prompt is begun,
    because only some models of a family reason, with the same tokens and template as the others (Qwen3).

    Args:
        marks: the tokens of its family; None if there are none.
        longest: most tokens of reasoning; 0: answers are not divided into reasoning and answer.
        context_length: most tokens of prompt, reasoning and answer together.
        prompt_ids: one of the prompts.
        beginning: returns the first ids of the answer to a prompt, at most so many; None if there is no answer.

    Raises:
        EngineError: no answer to the prompt was begun.
    """
    is_open = False if marks is None or not longest else marks.is_open_after(prompt_ids)
    if marks is None or is_open is False:
        return None
    if is_open:
        return Reasoning([], marks.close_id, longest, context_length)
    ids = await beginning(prompt_ids, FIRST_TOKENS)
    if ids is None:
        raise EngineError("no engine began an answer, so it is not known whether the model reasons")
    opening = marks.opening(ids)
    return None if opening is None else Reasoning(opening, marks.close_id, longest, context_length)
