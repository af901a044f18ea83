"""Tests questions that each update answers, those asked after the switch, and orders that arrive in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from claw_base.files import write_json
from claw_base.run_folder.orders import VersionOrder, VersionOrders
from slime.arguments import Arguments
from slime.errors import EngineError
from slime.gate.gate import CandidateGate
from slime.types import Sample
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

QUESTIONS = 8
HOOKS = f"""
def gate_samples(args, rollout_id, version):
    return [
        {{"tokens": [1, at], "response_length": 0, "label": str(at), "metadata": {{"gate": "question", "key": str(at)}}}}
        for at in range({QUESTIONS})
    ]

def on_weights_rejected(args, rollout_id, version, rejection):
    open(args.save + "/released", "a").write(str(rejection["release"]) + " ")
"""


class Trainers:
    def __init__(self) -> None:
        self.calls: list[object] = []

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        return {"change": 0.001}

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        return [[] for _ in samples]

    def keep_state(self) -> None:
        self.calls.append("keep")

    def go_back(self) -> None:
        self.calls.append("back")

    def shrink(self, share: float) -> None:
        raise AssertionError("nothing writes the weights again")

    def scale_learning_rate(self, scale: float) -> None:
        self.calls.append(scale)


class Engine:
    """Answers each question right except those in `wrong` of a version; `drafts`: number of prompts with a draft."""

    def __init__(self, **wrong: set[int]) -> None:
        self.wrong = {int(name[1:]): questions for name, questions in wrong.items()}
        self.asked: list[tuple[int, list[int]]] = []
        self.drafts: list[int] = []
        self.held: threading.Event | None = None
        self.discarded = 0
        self.is_lost = False

    def discard(self) -> None:
        self.discarded += 1
        if self.held is not None:
            self.held.set()

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        most: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> Any:
        if self.held is not None:
            assert self.held.wait(20)
        if self.is_lost:
            raise EngineError("it ended")
        self.asked.append((version, [prompt[1] for prompt in prompts]))
        self.drafts.append(sum(map(bool, drafts)))
        wrong = self.wrong.get(version, set())
        return [
            {
                "ids": [7, prompt[1], 2],
                "log_probs": [-0.1] * 3,
                "text": f"It is {90 + prompt[1] if prompt[1] in wrong else prompt[1]}.",
                "ended": True,
            }
            for prompt in prompts
        ]


class Loop:
    """Publishes versions one after another, as the driver does."""

    def __init__(self, folder: Path, **flags: Any) -> None:
        hooks = folder / "hooks.py"
        hooks.write_text(HOOKS)
        named = {"gate_samples_path": str(hooks), "on_weights_rejected_path": str(hooks)}
        told = {"gate": True, "gate_answers_every": 1, "gate_questions": 2, "save": str(folder)}
        self.orders = VersionOrders(folder)
        self.gate = CandidateGate(Arguments(**{**told, **named, **flags}), self.orders)
        self.trainers, self.live, self.newest = Trainers(), version(3), 3
        self.gate.begin(self.trainers, 6, self.live)

    def publish(self, engine: Engine) -> dict[str, float]:
        self.newest += 1
        candidate = Candidate(version(self.newest), rollout_id=self.newest, parent=self.live.version)
        try:
            found = self.gate.examine(self.trainers, candidate, self.live, [engine])
        except CandidateRejected as rejection:
            self.gate.reject(self.trainers, candidate, rejection)
            raise
        self.live = candidate.weights
        self.gate.accept(self.trainers, found)
        if self.gate.audit.running is not None:
            self.gate.audit.running.result(20)
        self.gate.watch()
        return found


def version(number: int) -> WeightVersion:
    return WeightVersion(number, f"/v{number}", f"sum-{number}")


@pytest.fixture
def loop(tmp_path: Path) -> Callable[..., Loop]:
    return lambda **flags: Loop(tmp_path, **flags)


def test_every_update_answers_a_few_questions_before_going_live_and_the_others_after(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(), Engine()
    run.publish(engine)
    everything = list(range(QUESTIONS))
    assert engine.asked == [(3, everything), (4, everything)], "the first time all, of both"
    engine.asked.clear()
    run.publish(engine)
    run.publish(engine)
    assert engine.asked == [(5, [0, 1]), (5, [0, 1]), (6, [2, 3]), (6, [2, 3])], "a quarter of them"
    assert engine.drafts[-1] == 2, "what was answered before is known"
    assert run.gate.history.good == 6


def test_a_wrong_answer_triggers_all_questions_before_going_live(loop: Callable[..., Loop]) -> None:
    run, engine = loop(), Engine(v5={1}, v6={2, 5})
    run.publish(engine)
    engine.asked.clear()
    with pytest.raises(CandidateRejected, match="88% of the questions are answered correctly") as caught:
        run.publish(engine)
    put = [(one, len(asked)) for one, asked in engine.asked]
    assert put == [(5, 2), (5, QUESTIONS - 2), (4, QUESTIONS)], "then the live one anew: did it fall before?"
    assert run.orders.waiting() is None
    assert caught.value.stage == "answers" and caught.value.measurements["right"] == 7 / 8
    assert run.trainers.calls[-2:] == ["back", 1.0]


def test_a_version_found_worse_later_is_rolled_back_automatically(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(gate_questions=1), Engine(v5={1, 7})
    run.publish(engine)
    engine.asked.clear()
    run.publish(engine)
    assert [(one, len(asked)) for one, asked in engine.asked] == [(5, 1), (5, 2), (5, 6)]
    order = run.orders.waiting()
    assert order is not None
    assert (order.action, order.version, order.drop_turns) == ("rollback", 4, True)
    assert order.reason == "gate: 75% of the questions are answered correctly (best version: 100%)"
    with pytest.raises(CandidateRejected, match="an order was pending: rollback 4"):
        run.publish(engine)


def test_a_regression_missed_while_no_engine_answered_is_rolled_back_with_the_next_one(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(), Engine(v5={1, 7}, v6={1, 7})
    run.publish(engine)
    engine.is_lost = True
    run.publish(engine)
    assert run.live.version == 5 and run.orders.waiting() is None
    engine.is_lost, run.gate.answers.at = False, 0
    with pytest.raises(
        CandidateRejected, match=r"75% of the questions are answered correctly \(best version: 100%\)"
    ):
        run.publish(engine)
    order = run.orders.waiting()
    assert order is not None and (order.action, order.version, order.drop_turns) == ("rollback", 4, True)


def test_without_a_better_version_training_continues_from_the_worse_live_one(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(), Engine(v4={1, 7}, v5={1, 7}, v6={1, 7}, v7={1, 2, 7})
    run.gate.history.right, run.gate.history.questions = 1.0, float(QUESTIONS)
    engine.is_lost = True
    run.publish(engine)
    engine.is_lost, run.gate.history.good, run.gate.history.suspect = False, None, True
    with pytest.raises(CandidateRejected, match=r"best version: 100%"):
        run.publish(engine)
    assert run.orders.waiting() is None
    assert run.publish(engine)["right"] == 6 / 8
    with pytest.raises(
        CandidateRejected, match=r"62% of the questions are answered correctly \(best version: 75%\)"
    ):
        run.publish(engine)


def test_a_candidate_is_not_rejected_for_answers_of_an_earlier_version(loop: Callable[..., Loop]) -> None:
    run, engine = loop(), Engine()
    run.publish(engine)
    answers = run.gate.answers.live_answers
    for name, answer in answers.items():
        answers[name] = replace(answer, ids=[7] * 20)
    assert run.publish(engine)["length"] == 3
    assert len(run.gate.answers.live_answers["0"].ids) == 3, "the live weights are asked again"


def test_a_missing_good_version_does_not_stop_training(loop: Callable[..., Loop]) -> None:
    run, engine = loop(), Engine(v5={1, 7}, v6={1, 7}, v7={1, 7}, v8={1, 7})
    run.publish(engine)
    engine.is_lost = True
    run.publish(engine)
    engine.is_lost, run.gate.answers.at = False, 0
    with pytest.raises(CandidateRejected, match="75% of the questions"):
        run.publish(engine)
    order = run.orders.next()
    assert order is not None and order.version == 4
    run.gate.miss(order.version)
    run.orders.finish(order, None, "version 4 is no longer on disk")
    with pytest.raises(CandidateRejected, match="75% of the questions"):
        run.publish(engine)
    assert run.orders.waiting() is None
    assert run.publish(engine)["right"] == 6 / 8


def test_after_a_rollback_without_known_answers_a_decline_is_still_detected(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(gate_answers_every=2), Engine(v5={0, 1, 6})
    run.publish(engine)
    run.gate.history.right, run.gate.history.questions = 1.0, float(QUESTIONS)
    run.gate.begin(run.trainers, 7, run.live)
    run.gate.history.unanswered = 0
    run.publish(engine)
    order = run.orders.waiting()
    assert order is not None and order.reason.startswith("gate: 62% of the questions")


def test_after_a_worse_version_the_next_one_is_asked_all_questions_before_going_live(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(gate_questions=1, gate_answers_every=100), Engine(v5={1, 7}, v6={1, 7})
    run.publish(engine)
    run.gate.audit.at = 0
    engine.asked.clear()
    run.publish(engine)
    assert engine.asked == [(5, [0, 1]), (5, [2, 3, 4, 5, 6, 7])], "it fell behind its switch"
    order = run.orders.next()
    assert order is not None and run.gate.history.suspect
    run.orders.finish(order, None)
    run.live = version(4)
    run.gate.begin(run.trainers, 9, run.live)
    with pytest.raises(CandidateRejected, match="75% of the questions"):
        run.publish(engine)
    assert run.publish(engine)["right"] == 1.0 and not run.gate.history.suspect
    engine.asked.clear()
    assert "right" not in run.publish(engine), "the next one is not looked at again"


def test_after_a_lost_question_the_next_versions_are_asked_all_questions_after_going_live(
    loop: Callable[..., Loop],
) -> None:
    run, engine = (
        loop(gate_max_wrong=0.2, gate_answers_every=100),
        Engine(**{f"v{n}": {1} for n in range(5, 30)}),
    )
    run.publish(engine)
    run.gate.audit.at = 0
    run.publish(engine)
    engine.asked.clear()
    for _ in range(5):
        run.publish(engine)
    assert [len(asked) for _, asked in engine.asked] == [QUESTIONS] * 4 + [2], "then the loss is an old one"


def test_an_update_near_a_limit_is_asked_some_questions_before_going_live_and_the_rest_after(
    loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, engine = loop(gate_questions=1, gate_answers_every=100), Engine()
    run.gate.history.unanswered = 99
    run.publish(engine)
    monkeypatch.setattr("slime.gate.gate.is_near", lambda found, args: True)
    engine.asked.clear()
    run.publish(engine)
    assert [len(asked) for _, asked in engine.asked] == [2, QUESTIONS]


def test_an_updates_check_is_postponed_at_most_twice_while_the_live_version_is_checked(
    loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, engine = loop(gate_answers_every=2), Engine()
    run.publish(engine)
    monkeypatch.setattr(type(run.gate.audit), "busy", True)
    assert [run.publish(engine)["looked"] for _ in range(3)] == [0.0, 0.0, 1.0]
    monkeypatch.setattr("slime.gate.gate.is_near", lambda found, args: True)
    assert run.publish(engine)["looked"] == 1.0, "not one that is near a limit"


def test_a_few_wrong_answers_within_the_limit_pass(loop: Callable[..., Loop]) -> None:
    run, engine = loop(gate_max_wrong=0.3), Engine(v5={0, 6})
    run.publish(engine)
    assert run.publish(engine)["right"] == 6 / 8 and run.orders.waiting() is None


def test_a_starting_run_asks_its_first_weights_all_questions_in_the_background(
    loop: Callable[..., Loop],
) -> None:
    run, engine = loop(), Engine()
    run.gate.begin(run.trainers, 6, run.live, [engine])
    run.publish(engine)
    assert [(one, len(asked)) for one, asked in engine.asked] == [(3, QUESTIONS), (4, 2), (4, 2)]
    assert run.gate.history.right == 1.0


@pytest.mark.parametrize("drop", [False, True])
def test_an_order_ends_the_check_and_releases_its_samples_unless_it_drops_turns(
    loop: Callable[..., Loop], tmp_path: Path, drop: bool
) -> None:
    run, engine = loop(), Engine()
    engine.held = threading.Event()
    order = VersionOrder("a", "rollback", 1, drop_turns=drop)
    threading.Timer(0.2, lambda: leave(run.orders, order)).start()
    with pytest.raises(CandidateRejected, match="an order was pending: rollback 1") as caught:
        run.publish(engine)
    assert engine.discarded == 1 and caught.value.stage == "order"
    assert (tmp_path / "released").read_text() == f"{not drop} "
    assert run.gate.history.in_a_row == 0, "nothing was found against it"
    assert run.trainers.calls[-2:] == ["back", 1.0]


def leave(orders: VersionOrders, order: VersionOrder) -> None:
    write_json(orders.order, asdict(order))


def test_the_drivers_own_order_does_not_replace_a_persons(tmp_path: Path) -> None:
    orders = VersionOrders(tmp_path)
    leave(orders, VersionOrder("a", "pin", 2))
    assert not orders.go_back(1, "fallen") and orders.waiting() == VersionOrder("a", "pin", 2)
    orders.finish(VersionOrder("a", "pin", 2), 2)
    assert orders.go_back(1, "fallen")
    found = orders.next()
    assert found is not None and (found.version, found.reason, found.drop_turns) == (1, "fallen", True)
