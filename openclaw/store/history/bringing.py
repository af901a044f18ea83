"""Imports past sessions: tokenizes their turns for the trained model and stores them, so that they are judged.

Another model may have sampled the answers, with another tokenizer. Therefore an imported turn has no log-probs and no
weight version; the trainer computes its old log-probs with the initial weights.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from pathlib import Path

from openclaw.errors import ClientError, ConfigError, StoreError
from openclaw.sessions.transcript import Transcript
from openclaw.store.files.tokenizing import ConversationTokenizer
from openclaw.store.history.past import PastSession, PastTurn
from openclaw.store.history.reading import Histories
from openclaw.store.rollout_store import RolloutStore
from openclaw.types import NewTurn, TurnState

Counts = dict[str, int | dict[str, int]]


def describe(histories: Histories) -> Counts:
    """Returns counts of the files, sessions and turns of histories, before the turns are tokenized."""
    turns = [turn for session in histories.sessions for turn in session.turns]
    return {
        "files": dict(histories.files),
        "sessions": len(histories.sessions),
        "turns": len(turns),
        "with_next_state": sum(bool(turn.next_state) for turn in turns),
        "with_tool_calls": sum(bool(turn.answer.get("tool_calls")) for turn in turns),
        "left_out": dict(_left_out(histories)),
    }


def _left_out(histories: Histories) -> Counter[str]:
    return sum((session.left_out for session in histories.sessions), Counter[str]())


def import_histories(
    store: RolloutStore | None, histories: Histories, model_path: Path, person: str | None = None
) -> Counts:
    """Stores past sessions. Returns counts.

    A turn with a next state is stored as answered, so that it is judged. The last turn of a session has none and is
    stored as imported; importing the log again when it is longer adds its next state. Turns that were imported before,
    or that the gateway recorded in the same session, do not change.

    Args:
        store: None for a dry run, whose counts are those of an import into an empty store.
        model_path: folder of the trained model.
        person: person of the turns.

    Returns:
        The counts of `describe`, and the number of turns by result: `answered`, `imported`, `known` (stored before).
        `left_out` also counts `context_length_exceeded` and `cannot_be_written` (the chat template rejects the turn).

    Raises:
        ConfigError: `model_path` is not a model.
        StoreError: the database failed; importing again adds the missing turns.
    """
    try:
        tokenizer = ConversationTokenizer(model_path)
    except OSError as error:
        raise ConfigError(f"{model_path}: {error}") from error
    counts = describe(histories)
    results: Counter[str] = Counter(answered=0, imported=0, known=0)
    left_out = _left_out(histories)
    for session in histories.sessions:
        prepared = _prepared(tokenizer, session, person, left_out)
        if store is None:
            results.update("answered" if past.next_state else "imported" for _, past in prepared)
            continue
        with store.database.transaction():
            results.update(_store(store, turn, past) for turn, past in prepared)
    return counts | dict(results) | {"left_out": dict(left_out)}


def _prepared(
    tokenizer: ConversationTokenizer, session: PastSession, person: str | None, left_out: Counter[str]
) -> list[tuple[NewTurn, PastTurn]]:
    """Returns the tokenized turns of a session. Counts turns that cannot be tokenized in `left_out`."""
    prepared = []
    for past in session.turns:
        if tokenizer.messages_exceed_context(past.messages):
            left_out["context_length_exceeded"] += 1
            continue
        try:
            turn = tokenizer.turn(
                past.messages, past.answer, completion_id=_completion_id(session.id, past), session_id=session.id,
                person=person,
            )  # fmt: skip
        except (ClientError, StoreError):
            left_out["cannot_be_written"] += 1
            continue
        if turn.state is TurnState.IMPORTED:
            prepared.append((turn, past))
        else:
            left_out[turn.state_reason or ""] += 1
    return prepared


def _store(store: RolloutStore, turn: NewTurn, past: PastTurn) -> str:
    """Stores a turn. Returns its state, or "known" if it was stored before."""
    recorded = store.turns.find_by_digest([turn.transcript_digest], turn.session_id)
    if recorded is not None and recorded.source != "import":
        return "known"
    stored = store.turns.record(turn)
    has_no_next_state = stored.state is TurnState.IMPORTED
    if past.next_state and has_no_next_state and store.turns.answer(stored.id, past.next_state):
        return str(TurnState.ANSWERED)
    return "known" if stored.id != turn.id else str(stored.state)


def _completion_id(session_id: str, past: PastTurn) -> str:
    """Returns an id that depends only on session and turn, so that a second import does not store the turn again."""
    transcript = Transcript.of(past.messages).with_answer(past.answer)
    data = f"{session_id}\n{transcript}".encode()
    return "import-" + hashlib.sha256(data).hexdigest()[:32]
