"""The benchmark of several people counts sessions until a person's preference is learned."""

from __future__ import annotations

from pathlib import Path

from claw_lab.benchmarks.learning.adapters_of_people import Person, parse, untrained
from openclaw.store import RolloutStore
from openclaw.types import Judgement, NewTurn, SampleDraft, Vote


def test_a_preference_counts_as_learned_after_two_checks_in_a_row_reach_the_target() -> None:
    person = Person("person0", "student", 0)
    for sessions, share in ((0, 0.1), (4, 0.9), (8, 0.7), (12, 0.8), (16, 0.81), (20, 0.2)):
        person.sessions = sessions
        person.note(share)
    assert person.reached == 16 and person.shares[1] == 0.9


def test_the_people_option_accepts_known_tastes() -> None:
    options = parse(["--people", "student", "counter", "--kinds", "adapters"])
    assert options.people == ["student", "counter"] and options.kinds == ["adapters"]


def test_a_person_waits_for_the_judge_and_the_trainer_of_own_turns_only(tmp_path: Path) -> None:
    store = RolloutStore(tmp_path / "buffer")
    turn = store.turns.record(
        NewTurn(
            completion_id="c",
            session_id="s",
            messages=[{"role": "user", "content": "2 + 2?"}],
            response_message={"role": "assistant", "content": "4"},
            prompt_ids=[5, 6],
            completion_ids=[8, 9],
            completion_log_probs=[-0.25, -0.5],
            version_spans=[(0, 0, 2)],
            sampling={},
            finish_reason="stop",
            transcript_digest="d",
            key_name="ada",
        )
    )
    counts = [untrained(tmp_path, "ada")]
    assert store.turns.answer(turn.id, [{"role": "user", "content": "Thanks!"}])
    counts.append(untrained(tmp_path, "ada"))
    judgement = Judgement(kind="eval", score=1.0, votes=[Vote(score=1)], judge="test")
    store.judgements.finish(turn.id, [judgement], SampleDraft(turn_id=turn.id, reward={"score": 1.0}))
    counts.append(untrained(tmp_path, "ada"))
    assert store.samples.lease(0, 1)
    counts.append(untrained(tmp_path, "ada"))
    others = untrained(tmp_path, "bob")
    store.samples.commit_lease(0, 1)
    counts.append(untrained(tmp_path, "ada"))
    assert counts == [0, 1, 1, 1, 0] and others == 0
    store.close()
