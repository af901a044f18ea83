"""The reward of an episode: +1 for a correct answer, -1 for a wrong one, with additions or costs for calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from slime.rollout.rm_hub.answers import labels_of
from slime.rollout.rm_hub.mathematics import is_right
from toolcall_rl.reading import answer_in, spoken

TAIL = 300
"""Characters at the end of the last turn in which the strict check looks for the boxed answer."""
LEAST_WRONG, A_CALL = -0.6, 0.05
Check = Literal["math", "strict"]


@dataclass(frozen=True)
class RewardRules:
    """Rules for the score of an episode.

    Attributes:
        check: math: the answers are equal as numbers or algebraically (math-verify). strict: the boxed text equals
            the label.
        encouragement: reward tool use if the answer is wrong, as in ReTool: the score rises by 0.05 per call, from
            -1.1 without calls up to -0.6.
        price: cost of each call, for any answer.
    """

    check: Check = "math"
    encouragement: bool = True
    price: float = 0.0

    def score(self, right: bool, calls: int) -> float:
        """Returns the reward of an episode with this many calls."""
        outcome = 1.0 if right else -1.0
        if self.encouragement and not right:
            outcome = min(LEAST_WRONG, outcome + (calls - 2) * A_CALL)
        return outcome - self.price * calls


def answer_of(last_turn: str, check: Check) -> str | None:
    """Returns the final answer, searched only in the model's last turn."""
    spoken_text = spoken(last_turn)
    return answer_in(spoken_text[-TAIL:] if check == "strict" else spoken_text)


def right_answer(answer: str | None, label: object, check: Check) -> bool:
    """Returns whether an answer equals the label, or one of several labels. May take seconds: algebra runs in a
    separate process.

    Raises:
        RewardError: that process did not start.
    """
    if answer is None:
        return False
    if check == "strict":
        return answer in labels_of(label)
    return is_right(answer, label)
