"""A conversation as token ids: what the model sampled stays as sampled, only what it did not write is encoded."""

from __future__ import annotations

from collections.abc import Sequence

from slime.agents.protocol import Message, Start
from slime.errors import DataError
from slime.rollout.tokenizer import ChatTokenizer

_ANSWER = "the answer so far"
_ASKED = [{"role": "user", "content": "a question"}, {"role": "assistant", "content": _ANSWER}]


def opening(tokenizer: ChatTokenizer, start: Start) -> list[int]:
    """Ids of the first messages and tools, up to where the model writes [T]."""
    tools = [tool.spec() for tool in start.tools]
    return tokenizer.encode(tokenizer.render(start.messages, tools, answer_next=True))


def continuation(tokenizer: ChatTokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of what stands between the end of one answer and the beginning of the next [T], by the model's template.

    The template renders `messages` behind an answer that is known; what follows its end is taken. So an answer is never
    encoded again, whatever ids it was sampled in.

    Raises:
        DataError: the template does not end an answer with the token that ends sampling.
    """
    end_of_answer = _ANSWER + tokenizer.eos_token
    _, found, behind = tokenizer.render([*_ASKED, *messages], answer_next=True).partition(end_of_answer)
    if not found:
        raise DataError(
            f"the chat template does not end an answer with {tokenizer.eos_token}, so its ids cannot be continued"
        )
    return tokenizer.encode(behind)
