"""The reward of an episode: +1 for a right answer, -1 for a wrong one, and what its calls add or cost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.rollout.rm_hub.answers import labels_of
from slime.rollout.rm_hub.mathematics import is_right
from toolcall_rl.reading import answer_in, spoken

TAIL = 300
"""Characters at the end of the last turn in which the strict form looks for the box."""
LEAST_WRONG, A_CALL = -0.6, 0.05
Check = Literal["math", "strict"]


@dataclass(frozen=True)
class RewardRules:
    """Rules for the score of an episode.

    Attributes:
        check: math: the answers are equal, by number or by algebra (math-verify). strict: the text in the box is the
            label.
        encouragement: of tool use where the answer is wrong, as ReTool has it: the score rises by 0.05 a call, from -1.1
            without one up to -0.6.
        price: of each call, whatever the answer.
    """

    check: Check = "math"
    encouragement: bool = True
    price: float = 0.0

    def score(self, right: bool, calls: int) -> float:
        """Returns the reward of a whole episode with so many calls."""
        outcome = 1.0 if right else -1.0
        if self.encouragement and not right:
            outcome = min(LEAST_WRONG, outcome + (calls - 2) * A_CALL)
        return outcome - self.price * calls


def answer_of(last_turn: str, check: Check) -> str | None:
    """Returns the final answer, looked for in nothing but what the model wrote last."""
    spoken_text = spoken(last_turn)
    return answer_in(spoken_text[-TAIL:] if check == "strict" else spoken_text)


def right_answer(answer: str | None, label: object, check: Check) -> bool:
    """Returns whether an answer is the label, or one of several. May take seconds: algebra runs in a process of its
    own.

    Raises:
        RewardError: that process did not start.
    """
    if answer is None:
        return False
    if check == "strict":
        return answer in labels_of(label)
    return is_right(answer, label)
