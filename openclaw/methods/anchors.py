"""Anchors: turns with an explicit request in the prompt, on which the policy is kept close to the initial model.

Users' scores teach a habit: the form of answers to requests that specify none. Such turns do not show that explicit
requests take precedence, so the model would forget to obey them. An anchor is the turn's own answer after a prompt
with a request unrelated to the turn. Its teacher gets the same prompt, so a distillation loss draws the policy back
to the initial model's continuation. Scores are not used.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from openclaw.common.messages import text_of
from openclaw.errors import ConfigError, HintError
from openclaw.methods.hinted_prompt import HintedPrompts
from openclaw.types import Message, Turn

WISHES = (
    "Number the points, one a line.",
    "Use bullet points for it.",
    "Show the points below each other, each with its number.",
    "Lay it out as an ordered list.",
    "Use headings and bold text.",
    "Put it in a table.",
    "Write plain paragraphs without any formatting.",
    "One flowing paragraph, please.",
    "Reply in one short sentence.",
    "Only the outcome, nothing else.",
    "The outcome alone will do.",
    "Leave everything out but what comes out in the end.",
    "One figure, no text around it.",
    "Skip the working.",
    "Explain it at length.",
    "Give every detail.",
    "Leave nothing out, and take your time.",
    "Write a long version in whole sentences.",
    "Go through it carefully, sentence by sentence.",
    "Keep it brief.",
    "Take a friendly tone.",
    "Sound like somebody who cares.",
    "Say it gently and with praise.",
    "Be encouraging.",
    "Take a formal tone.",
    "Stay dry and factual.",
    "Write it for a child.",
    "Answer as JSON.",
    "Answer in Spanish.",
    "Use emoji.",
)
"""Forms, lengths, tones and languages that users ask for; --anchor-wishes replaces them by those in a file."""


def read_wishes(path: str | None) -> tuple[str, ...]:
    """Returns the requests in a file, one a line; `WISHES` without a file. Raises ConfigError."""
    if path is None:
        return WISHES
    try:
        lines = Path(path).read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--anchor-wishes {path}: {error}") from error
    if not (wishes := tuple(line.strip() for line in lines if line.strip())):
        raise ConfigError(f"--anchor-wishes {path} contains no wish")
    return wishes


@dataclass(frozen=True)
class Anchors:
    """Makes anchors of turns.

    Attributes:
        share: anchors a turn; a fractional part is a probability.
    """

    prompts: HintedPrompts
    wishes: tuple[str, ...]
    share: float

    def of(self, turn: Turn, seed: str) -> list[list[int]]:
        """Returns ids of prompts with a request, each with the turn's completion ids [T]; deterministic for a seed.

        A prompt that cannot be rendered, or is too long, is skipped.
        """
        rng = random.Random(seed)
        count = int(self.share) + (rng.random() < self.share % 1)
        prompts = []
        for _ in range(count):
            messages = wished(rng, turn, rng.choice(self.wishes))
            try:
                prompts.append(self.prompts.answered(turn, messages))
            except HintError:
                continue
        return prompts


def wished(rng: random.Random, turn: Turn, wish: str) -> list[Message]:
    """Returns the turn's conversation with the request after its last user message, in the system message, or in a
    message about the turn's answer."""
    place = rng.choice(("beside", "below", "system", "system", "about the answer"))
    messages = list(turn.messages)
    answer = turn.response_message
    if (
        place == "about the answer"
        and isinstance(answer.get("content"), str)
        and not answer.get("tool_calls")
    ):
        reply = {"role": "assistant", "content": answer["content"]}
        return [*messages, reply, {"role": "user", "content": wish}]
    if place == "system":
        return _with_system(messages, wish)
    users = [index for index, message in enumerate(messages) if message.get("role") == "user"]
    if not users:
        return [*messages, {"role": "user", "content": wish}]
    between = " " if place == "beside" else "\n\n"
    content = f"{text_of(messages[users[-1]])}{between}{wish}"
    messages[users[-1]] = {**messages[users[-1]], "content": content}
    return messages


def _with_system(messages: Sequence[Message], wish: str) -> list[Message]:
    if messages and messages[0].get("role") == "system":
        content = f"{text_of(messages[0])}\n\n{wish}"
        return [{**messages[0], "content": content}, *messages[1:]]
    return [{"role": "system", "content": wish}, *messages]
