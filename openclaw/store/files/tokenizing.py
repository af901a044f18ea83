"""Converts conversations to turns, with the tokenizer and the chat template of the trained model.

No engine sampled these answers, so a turn has no log-probs and no weight version. The trainer computes the log-probs.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from openclaw.common.messages import text_of
from openclaw.errors import ClientError, StoreError
from openclaw.formats.rendering import ChatFormat, ModelFolder, renderable
from openclaw.formats.template_probe import probe
from openclaw.formats.tokenizer import Tokenizer
from openclaw.sessions.transcript import Transcript
from openclaw.store.files.conversations import Conversation, ConversationTurn, read_conversations
from openclaw.store.rollout_store import RolloutStore
from openclaw.types import Message, NewTurn, TurnState

TEMPERATURE = 1.0
"""Temperature of answers whose sampling is unknown: that of the model's own distribution."""
TURNS_PER_TRANSACTION = 500


@dataclass(frozen=True)
class PreparedTurn:
    """A turn that is ready to be stored, and its next state; None if it has none."""

    turn: NewTurn
    next_state: list[Message] | None


class ConversationTokenizer:
    """Converts conversations to turns of one model. Raises ConfigError if the folder is not a model."""

    def __init__(self, model_path: Path) -> None:
        self._folder = ModelFolder.read(model_path)
        self._tokenizer = Tokenizer(model_path)
        self._format = ChatFormat(self._folder, self._tokenizer)
        self._tokenizer.read_text_as_plain(lambda: probe(self._format))  # as in the gateway
        self._end = self._end_of_answer()

    def prepare(self, conversation: Conversation, where: str) -> list[PreparedTurn]:
        """Returns the turns of a conversation.

        Args:
            where: position of the conversation, for error messages.

        Raises:
            StoreError: the chat template cannot render a turn, which the error names.
        """
        history: list[Message] = []
        prepared = []
        for index, turn in enumerate(conversation.turns):
            messages = [*(history if turn.type == "main" else []), {"role": "user", "content": turn.prompt}]
            try:
                prepared.append(self._turn(conversation, index, messages))
            except (ClientError, StoreError) as error:
                raise StoreError(f"{where}: turns.{index}: {error}") from error
            if turn.type == "main":
                history = [*messages, {"role": "assistant", "content": turn.response}]
        return prepared

    def _turn(self, conversation: Conversation, index: int, messages: list[Message]) -> PreparedTurn:
        turn = conversation.turns[index]
        answer: Message = {"role": "assistant", "content": turn.response}
        state, reason = _state(turn)
        new = self.turn(
            messages,
            answer,
            completion_id=_completion_id(conversation.session_id, index, messages, turn.response),
            session_id=conversation.session_id,
            person=conversation.person,
        )
        if new.state is TurnState.IMPORTED or state is not TurnState.IMPORTED:
            new = replace(new, turn_type=turn.type, state=state, state_reason=reason)
        return PreparedTurn(
            new, _next_state(conversation, index) if new.state is TurnState.IMPORTED else None
        )

    def turn(
        self,
        messages: list[Message],
        answer: Message,
        *,
        completion_id: str,
        session_id: str,
        person: str | None,
    ) -> NewTurn:
        """Returns an answer as a main turn: imported, or untrainable if it exceeds the context length.

        Raises:
            ClientError, StoreError: the chat template cannot render the turn.
        """
        prompt_ids = self._format.render(messages, None, False)
        completion_ids = self._answer_ids(messages, answer, prompt_ids)
        fits = len(prompt_ids) + len(completion_ids) <= self._folder.context_length
        return NewTurn(
            completion_id=completion_id,
            session_id=session_id,
            person=person,
            state=TurnState.IMPORTED if fits else TurnState.UNTRAINABLE,
            state_reason=None if fits else "context_length_exceeded",
            source="import",
            messages=messages,
            response_message=answer,
            prompt_ids=prompt_ids,
            completion_ids=completion_ids,
            completion_log_probs=None,
            version_spans=[],
            sampling={"temperature": TEMPERATURE, "enable_thinking": False},
            finish_reason="tool_calls" if answer.get("tool_calls") else "stop",
            transcript_digest=Transcript.of(messages).with_answer(answer),
            tokenizer_fingerprint=self._tokenizer.fingerprint,
            template_fingerprint=self._format.fingerprint,
        )

    def messages_exceed_context(self, messages: list[Message]) -> bool:
        """Returns whether the messages alone certainly exceed the context length. This is cheaper than rendering
        them."""
        return self._tokenizer.exceeds(
            [text_of(message) for message in messages], self._folder.context_length
        )

    def _answer_ids(self, messages: list[Message], answer: Message, prompt_ids: list[int]) -> list[int]:
        """Returns the token ids [T] of an answer, including the token that ends it. The chat template renders tool
        calls."""
        if not answer.get("tool_calls"):
            completion_ids = self._tokenizer.encode(text_of(answer))
            if set(completion_ids) & set(self._format.stop_ids):
                raise StoreError("response: the text contains an end-of-turn token of the model; remove it")
            return completion_ids + self._end
        try:
            whole = self._format.whole([renderable(message) for message in [*messages, answer]])
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(f"the model's chat template cannot render the tool calls: {error}") from error
        ends = [index for index, id_ in enumerate(whole) if id_ in self._end]
        if whole[: len(prompt_ids)] != prompt_ids or not ends or ends[-1] < len(prompt_ids):
            raise StoreError(
                "the model's chat template does not render these tool calls as a continuation of the prompt"
            )
        return whole[len(prompt_ids) : ends[-1] + 1]

    def _end_of_answer(self) -> list[int]:
        """Returns the id [1] of the token that ends an answer in the chat template; [] if there is none."""
        example: list[Message] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
        ids = self._format.whole(example)
        return next(([id_] for id_ in reversed(list(ids)) if id_ in self._format.stop_ids), [])


def import_conversations(store: RolloutStore, path: Path, model_path: Path) -> dict[str, int]:
    """Adds the conversations of a file or folder to a store. Turns that were imported before are skipped.

    All files are read, validated and tokenized before the first turn is stored. Trainable main turns with a next state
    are stored as answered, so that they are judged; others as imported, side or untrainable.

    Returns:
        The number of sessions, of turns stored before (`known`), and of new turns by state.

    Raises:
        StoreError: a conversation is invalid (the error names file, line and field; nothing is stored), or the
            database failed (importing again adds the missing turns).
        ConfigError: `model_path` is not a model.
    """
    tokenizer = ConversationTokenizer(model_path)
    conversations = read_conversations(path)
    prepared = [tokenizer.prepare(conversation, where) for where, conversation in conversations]
    counts: Counter[str] = Counter(sessions=len(prepared), known=0)
    for batch in _batches(prepared):
        with store.database.transaction():
            counts.update(_store(store, turn) for turn in batch)
    return dict(counts)


def _batches(conversations: list[list[PreparedTurn]]) -> Iterator[list[PreparedTurn]]:
    """Yields batches of complete conversations. Each, except the last, has at least TURNS_PER_TRANSACTION turns."""
    batch: list[PreparedTurn] = []
    for turns in conversations:
        batch += turns
        if len(batch) >= TURNS_PER_TRANSACTION:
            yield batch
            batch = []
    yield batch


def _store(store: RolloutStore, prepared: PreparedTurn) -> str:
    """Stores a turn. Returns its state, or "known" if it was stored before."""
    stored = store.turns.record(prepared.turn)
    if stored.id != prepared.turn.id:
        return "known"
    if prepared.next_state is not None and store.turns.answer(stored.id, prepared.next_state):
        return str(TurnState.ANSWERED)
    return str(stored.state)


def _state(turn: ConversationTurn) -> tuple[TurnState, str | None]:
    """Returns the initial state of a turn, and its reason."""
    if turn.type == "side":
        return TurnState.SIDE, None
    if turn.trainable is False:
        return TurnState.UNTRAINABLE, "not_trainable"
    return TurnState.IMPORTED, None


def _next_state(conversation: Conversation, index: int) -> list[Message] | None:
    turn = conversation.turns[index]
    if turn.next_state:
        return [{"role": turn.next_state_role, "content": turn.next_state}]
    later_turns = (later for later in conversation.turns[index + 1 :] if later.type == "main")
    next_turn = next(later_turns, None)
    return None if next_turn is None else [{"role": "user", "content": next_turn.prompt}]


def _completion_id(session_id: str, index: int, messages: list[Any], response: str) -> str:
    """Returns an id that depends only on the turn's content, so that a second import does not store the turn again."""
    data = json.dumps([session_id, index, messages, response], ensure_ascii=True).encode()
    return "import-" + hashlib.sha256(data).hexdigest()[:32]
