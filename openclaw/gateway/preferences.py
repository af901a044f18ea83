"""What is remembered of a person, in the prompt of what they ask now.

It stands behind the last user message, where a hint stands for the teacher of distillation. A conversation that goes on
keeps the ids of its earlier prompts, so each wish stands in it once, and not at all where the person has said it in it,
or has asked there for another form in so many words.
"""

from __future__ import annotations

from collections.abc import Sequence

from openclaw.common.messages import said_in
from openclaw.common.wish_themes import gives_way
from openclaw.formats.rendering import RawPrompt
from openclaw.gateway.caller import Caller
from openclaw.gateway.chat_request import ChatRequest
from openclaw.gateway.recorder import Recorder
from openclaw.methods.hinted_prompt import with_memory
from openclaw.settings import Settings
from openclaw.types import Message, Turn

_LOOKED_AT = 16
"""Messages of the user, the newest, that are read for what they ask for in so many words."""


async def active_preferences(
    settings: Settings, recorder: Recorder | None, request: ChatRequest, caller: Caller
) -> list[str] | None:
    """What is remembered of the caller, the oldest first; None if memory is off, the request opts out,
    no person is named, or a key names the bearer of another one. Raises StoreError."""
    if not settings.memory or recorder is None or not caller.memory or caller.turn_type != "main":
        return None
    if caller.person is None or isinstance(request.messages[0], RawPrompt):
        return None
    if caller.person != caller.key_name and caller.person in dict(settings.client_keys):
        return None
    return await recorder.remembered(caller.person)


def not_yet_stated(wishes: Sequence[str], messages: Sequence[Message]) -> list[str]:
    """Those that no user message of the conversation contains, and of whose side of an answer's form none asks for
    anything: what is asked for here comes before what was asked for once."""
    said = said_in(messages)
    new = [wish for wish in wishes if not any(wish in text for text in said)]
    return [wish for wish in new if not gives_way(wish, *said[-_LOOKED_AT:])]


def prefix_still_valid(turn: Turn, wishes: Sequence[str] | None, new: Sequence[Message]) -> bool:
    """Whether all that a turn's prompt remembered is remembered now, and gives way to nothing that the `new` messages ask
    for; else its ids cannot begin another prompt."""
    stand, said = turn.memory or (), said_in(new)
    return set(stand) <= set(wishes or ()) and not any(gives_way(wish, *said) for wish in stand)


def inject(
    new: list[Message], wishes: Sequence[str], stand: Sequence[str]
) -> tuple[list[Message], list[str]]:
    """The new messages of a conversation whose prompt has the wishes `stand`, with the others behind the person's last
    words; and all that stand in the prompt then. Results of tools alone get none."""
    more = [wish for wish in wishes if wish not in stand]
    if not more or not any(message["role"] == "user" for message in new):
        return new, list(stand)
    return with_memory(new, more), [*stand, *more]
