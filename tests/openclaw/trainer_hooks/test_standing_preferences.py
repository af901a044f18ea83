"""Standing preferences: people's recent preferences are in the teacher's prompt of every turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openclaw.errors import ConfigError, HintError
from openclaw.store import RolloutStore
from openclaw.trainer_hooks import pipeline, replay, standing_preferences
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.types import Judgement, NewTurn, SampleDraft, Turn, Vote
from tests.fakes.hook_flags import hook_flags, rows_of

SELECT = "openclaw_combine.topk_select:sample_from_judged_turn"
Say = Callable[..., Turn]


class Prompts:
    """Records the teachers' prompts; the ids of a hinted prompt are numbers of its lines."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def candidate(self, turn: Turn, hint: str) -> list[int]:
        if "unwritable" in hint:
            raise HintError("no place for it")
        self.read.append(hint)
        return [len(self.read), *turn.prompt_ids, *turn.completion_ids]


@pytest.fixture
def prompts(monkeypatch: pytest.MonkeyPatch) -> Prompts:
    found = Prompts()
    monkeypatch.setattr(pipeline, "prompts_of", lambda path: found)
    return found


@pytest.fixture
def say(store: RolloutStore, make_turn: Callable[..., NewTurn]) -> Say:
    """Creates a turn with the hints that its judge found; without hints it was liked."""

    def make(person: str | None, *hints: str, score: float | None = None, **changes: object) -> Turn:
        turn = store.turns.record(make_turn(person=person, **changes))
        assert store.turns.answer(turn.id, [{"role": "user", "content": "so"}])
        score = (-1.0 if hints else 1.0) if score is None else score
        found = [Judgement(kind="eval", score=score, votes=[Vote(score=int(score))], judge="test")]
        hinted = 1.0 if hints else -1.0
        found += [Judgement(kind="hint", score=hinted, votes=[], judge="test", hints=list(hints))]
        own = [[7, *turn.prompt_ids, *turn.completion_ids] for _ in hints] or None
        draft = SampleDraft(
            turn_id=turn.id,
            reward={"score": score},
            teacher_tokens_candidates=own,
            metadata={"eval_score": score},
        )
        assert store.judgements.finish(turn.id, found, draft)
        return turn

    return make


def flags(**changes: object) -> Any:
    values = {
        "standing_wishes": "people",
        "standing_liked": False,
        "replay_steps": 0,
        "replay_window": 8,
        "replay_samples": 2,
        "anchor_share": 0.0,
    }
    return hook_flags(**{"method_path": SELECT} | values | changes)


def check(**changes: object) -> None:
    standing_preferences.check(HookSettings.of(flags(**changes)))


def test_every_turns_teacher_reads_each_persons_latest_preference(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose")
    say("bob", "warm")
    say("ada", "short", "shorter, please")
    say("bob")
    say(None)
    rows = rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert prompts.read == [
        "warm\nshorter, please\nprose",
        "prose\nshorter, please\nwarm",
        "warm\nprose\nshorter, please\nshort",
        "warm\nprose\nshorter, please",
        "prose\nshorter, please\nwarm",
        "warm\nprose\nshorter, please",
    ]
    counts = [len(row["teacher_tokens_candidates"]) for row in rows]
    assert counts == [1, 1, 2, 1, 1]


def test_a_new_kind_of_complaint_keeps_only_the_two_latest_preferences(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    for wish in ("no emoji", "warm", "no list, please"):
        say("ada", wish)
    say("bob")
    rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert prompts.read[-1] == "warm\nno list, please"


def test_a_teacher_reads_only_the_persons_own_preferences(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose")
    say("bob")
    say("ada", score=-1.0)
    say("ada", score=1.0)
    rows = rows_of(flags(standing_wishes="person"), store, store.samples.lease(0, 8), 0)
    assert prompts.read == ["prose", "prose"]
    assert [bool(row.get("teacher_tokens_candidates")) for row in rows] == [True, False, True, False]


def test_a_liked_turn_is_distilled_only_if_there_are_preferences(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose")
    say("ada", score=1.0)
    rows = rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert [bool(row.get("teacher_tokens_candidates")) for row in rows] == [True, False]
    rows = rows_of(flags(standing_liked=True), store, store.samples.lease(0, 8), 0)
    assert [bool(row.get("teacher_tokens_candidates")) for row in rows] == [True, True]
    say("ada", score=1.0)
    say("bob", "warm")
    prompts.read.clear()
    rows = rows_of(flags(), store, store.samples.lease(1, 8), 1)
    assert prompts.read == ["warm\nprose", "prose\nwarm"]


def test_replayed_turns_are_taught_the_current_preferences(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose")
    rows_of(flags(), store, store.samples.lease(0, 1), 0)
    store.versions.weights_live(0, 1, 0, False, None, None)
    say("ada", "warm")
    prompts.read.clear()
    args = flags(replay_steps=1)
    rows = rows_of(args, store, store.samples.lease(1, 1), 1)
    assert prompts.read == [
        "prose\nwarm",
        "warm\nprose",
    ]  # each turn once, even if it is trained in several steps
    again = [row["teacher_tokens_candidates"] for row in rows if row["metadata"].get("case") == replay.REPLAY]
    assert len(again) == 2 and all(again)
    read = list(prompts.read)
    prompts.read.clear()
    say("ada", "something newer")
    rows_of(args, store, store.samples.lease(1, 1), 1)
    assert prompts.read == read, "the same batch has the same teachers, whatever was said since"


def test_preferences_already_in_the_prompt_or_not_renderable_are_omitted(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose", memory=["prose"])
    say("bob", "unwritable")
    rows = rows_of(flags(standing_wishes="person"), store, store.samples.lease(0, 8), 0)
    assert prompts.read == []
    assert [row["teacher_tokens_candidates"][0][0] for row in rows] == [7, 7], "their own teachers"


def test_hints_of_a_rejected_update_and_of_deleted_turns_are_not_used(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "prose")
    store.samples.lease(0, 1)
    store.versions.weights_rejected(0, 1, 0, None, {})
    say("bob", "warm")
    gone = say("eve", "lists", session_id="of eve")
    store.deletion.delete_session(gone.session_id)
    say("bob")
    assert store.memory.asked_for([turn.turn.id for turn in store.samples.lease(1, 4)], 4, 1) == {
        "bob": ["warm"]
    }


@pytest.mark.parametrize(
    "change",
    [{"teacher_source": "inference"}, {"method_path": "openclaw_rl.binary_rl:sample_from_judged_turn"}],
)
def test_preferences_without_a_teacher_are_rejected(change: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="--standing-wishes people needs a method"):
        check(**change)
    check(standing_wishes="none", **change)
    with pytest.raises(ConfigError, match="--standing-liked"):
        check(standing_wishes="none", standing_liked=True)
    check()


def asked(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def test_a_complaint_that_repeats_its_own_request_is_used_for_its_turn_only(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "Please, no bullet points.", messages=asked("2 + 2?"))
    first = say("ada", "I asked for a list.", messages=asked("2 + 2? Use bullet points."))
    again = [*asked("2 + 2? Use bullet points."), *asked("I asked for a list.")]
    say("ada", "Number the steps, please: a list!", messages=again, parent_id=first.id)
    say("bob", messages=asked("3 + 3?"))
    rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert prompts.read == [
        "Please, no bullet points.",
        "I asked for a list.",
        "Number the steps, please: a list!",
        "Please, no bullet points.",
    ]


def test_a_second_complaint_is_used_if_its_request_does_not_mention_it(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    first = say("ada", "No list, please.", messages=asked("2 + 2?"))
    said = [*asked("2 + 2?"), *asked("No list, please.")]
    say("ada", "Write whole sentences.", messages=said, parent_id=first.id)
    say("ada", messages=asked("3 + 3?"), score=-1.0)
    rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert prompts.read[-1] == "No list, please.\nWrite whole sentences."


def test_a_request_after_a_liked_answer_is_a_new_preference(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    packing = asked("Make me a packing list as bullet points.")
    liked = say("ada", messages=packing)
    poem = [*packing, *asked("Thanks! What is the capital of France?")]
    say("ada", "Please, no bullet points.", messages=poem, parent_id=liked.id)
    say("bob", messages=asked("3 + 3?"))
    rows_of(flags(), store, store.samples.lease(0, 8), 0)
    assert prompts.read[-1] == "Please, no bullet points."


def test_a_turn_that_requests_a_form_is_taught_only_its_own_hints(
    store: RolloutStore, say: Say, prompts: Prompts
) -> None:
    say("ada", "No list, please.")
    say("ada", "Show the work.")
    listed = asked("2 + 2? As a numbered list.")
    say("ada", messages=listed, score=-1.0)
    say("ada", messages=listed, score=1.0)
    say("ada", "That was wrong.", messages=listed)
    rows = rows_of(flags(standing_liked=True), store, store.samples.lease(0, 8), 0)
    assert prompts.read[2:] == ["That was wrong."]
    assert [bool(row.get("teacher_tokens_candidates")) for row in rows] == [True, True, False, False, True]
