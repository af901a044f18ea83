"""Tests the gate's decisions, and the rollback of a trainer whose update it rejects."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.gate.gate import CandidateGate
from slime.types import Sample
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

LIVE = WeightVersion(3, "/v3", "sum-3")
CANDIDATE = Candidate(WeightVersion(4, "/v4", "sum-4"), rollout_id=7, parent=3)


class FakeTrainers:
    """Records its calls; `change` is the result of a comparison of files."""

    def __init__(self) -> None:
        self.calls: list[object] = []
        self.change = 0.001
        self.likelihood = {"a": [-1.0, -1.0], "b": [-1.0, -1.0]}

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        self.calls.append((candidate, live))
        return {"change": self.change}

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        self.calls.append(len(samples))
        return [self.likelihood[str(sample.metadata["key"])] for sample in samples]

    def keep_state(self) -> None:
        self.calls.append("keep")

    def go_back(self) -> None:
        self.calls.append("back")

    def shrink(self, share: float) -> None:
        raise AssertionError("nothing writes the weights again")

    def scale_learning_rate(self, scale: float) -> None:
        self.calls.append(scale)


@pytest.fixture
def trainers() -> FakeTrainers:
    return FakeTrainers()


@pytest.fixture
def make_gate(tmp_path: Path) -> Callable[..., CandidateGate]:
    def make(**flags: Any) -> CandidateGate:
        return CandidateGate(
            Arguments(**{"gate": True, "gate_answers_every": 1, "save": str(tmp_path), **flags})
        )

    return make


def rejected(gate: CandidateGate, trainers: FakeTrainers) -> CandidateRejected:
    with pytest.raises(CandidateRejected) as caught:
        gate.examine(trainers, CANDIDATE, LIVE)
    gate.reject(trainers, CANDIDATE, caught.value)
    return caught.value


def test_the_trainer_later_rolls_back_to_the_accepted_update(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate = make_gate()
    gate.begin(trainers, 6, LIVE)
    found = gate.examine(trainers, CANDIDATE, LIVE)
    gate.accept(trainers, found)
    assert trainers.calls == ["keep", 1.0, ("/v4", "/v3"), "keep"]
    assert found["change"] == 0.001 and found["most_change"] == 0.1 and found["seconds"] >= 0


def test_a_too_large_update_is_rejected_and_the_trainer_rolled_back(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, trainers.change = make_gate(), 0.2
    rejection = rejected(gate, trainers)
    assert str(rejection) == "the relative change of the weights is 0.2, above the limit of 0.1"
    assert rejection.measurements.items() >= {"change": 0.2, "most_change": 0.1, "rejected": 1.0}.items()
    assert trainers.calls[1:] == ["back", 1.0]


def test_a_change_that_is_not_finite_is_rejected(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, trainers.change = make_gate(), float("nan")
    rejected(gate, trainers)


def test_the_learning_rate_is_halved_from_the_second_rejection_in_a_row_until_one_is_accepted(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, trainers.change = make_gate(), 0.2
    for _ in range(3):
        rejected(gate, trainers)
    assert [call for call in trainers.calls if isinstance(call, float)] == [1.0, 0.5, 0.25]
    again = make_gate()
    again.begin(trainers, 6, LIVE)
    assert trainers.calls[-2:] == ["keep", 0.25], "a driver that starts again knows of them"
    again.accept(trainers, {"change": 0.001})
    assert trainers.calls[-2:] == ["keep", 1.0]


def test_with_skip_the_learning_rate_is_unchanged(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, trainers.change = make_gate(gate_on_reject="skip"), 0.2
    for _ in range(3):
        rejected(gate, trainers)
    assert {call for call in trainers.calls if isinstance(call, float)} == {1.0}


def test_the_hook_gets_reason_stage_and_measurements_before_the_rollback(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers, tmp_path: Path
) -> None:
    hook = tmp_path / "hook.py"
    told = tmp_path / "told.json"
    hook.write_text(
        "import json\n"
        "def on_weights_rejected(args, rollout_id, version, rejection):\n"
        f"    open({str(told)!r}, 'w').write(json.dumps([rollout_id, version, rejection]))\n"
    )
    gate, trainers.change = make_gate(on_weights_rejected_path=str(hook)), 0.2
    rejected(gate, trainers)
    rollout_id, version, rejection = json.loads(told.read_text())
    assert (rollout_id, version) == (7, 4)
    assert rejection["stage"] == "files" and rejection["parent"] == 3 and rejection["checksum"] == "sum-4"
    assert rejection["measurements"]["change"] == 0.2


def test_without_the_flag_no_update_is_checked(
    make_gate: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate = make_gate(gate=False)
    gate.begin(trainers, 6, LIVE)
    gate.accept(trainers, gate.examine(trainers, CANDIDATE, LIVE))
    assert trainers.calls == []


SAMPLES = """
def gate_samples(args, rollout_id, version):
    answer = {"tokens": [1, 2, 3], "response_length": 2}
    return [
        {**answer, "metadata": {"gate": "liked", "key": "a"}},
        {**answer, "metadata": {"gate": "recent", "key": "b"}},
        {"tokens": [4, 5], "response_length": 0, "label": "19", "metadata": {"gate": "question", "key": "q"}},
    ]
"""


class FakeEngine:
    """Answers "19" unless the version is in `wrong`."""

    def __init__(self, wrong: tuple[int, ...] = ()) -> None:
        self.wrong = wrong
        self.asked: list[tuple[int, int]] = []
        self.discarded = 0

    def discard(self) -> None:
        self.discarded += 1

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        most: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> Any:
        self.asked.append((version, len(prompts)))
        text = "It is 12." if version in self.wrong else "It is 19."
        return [{"ids": [7, 8], "log_probs": [-0.1, -0.1], "text": text, "ended": True} for _ in prompts]


@pytest.fixture
def make_compared(make_gate: Callable[..., CandidateGate], tmp_path: Path) -> Callable[..., CandidateGate]:
    (tmp_path / "samples.py").write_text(SAMPLES)
    return lambda **flags: make_gate(gate_samples_path=str(tmp_path / "samples.py"), **flags)


def test_one_forward_pass_compares_with_the_live_weights_initial_log_probs(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate = make_compared()
    gate.begin(trainers, 6, LIVE)
    trainers.calls.clear()
    trainers.likelihood = {"a": [-1.05, -1.05], "b": [-1.0, -1.1]}
    found = gate.examine(trainers, CANDIDATE, LIVE)
    assert trainers.calls.count(2) == 1, "liked and recent answers in one pass"
    assert found["liked_loss"] == pytest.approx(0.05) and 0 < found["kl"] < 0.01
    gate.accept(trainers, found)
    assert gate.examine(trainers, CANDIDATE, LIVE)["liked_loss"] == 0, "what went live is compared with next"


def test_a_candidate_under_which_liked_answers_are_unlikely_is_rejected_before_it_answers(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, engine = make_compared(), FakeEngine()
    gate.begin(trainers, 6, LIVE)
    trainers.likelihood = {"a": [-3.0, -3.0], "b": [-1.0, -1.0]}
    with pytest.raises(CandidateRejected, match="liked answers became less likely by 2 nats") as caught:
        gate.examine(trainers, CANDIDATE, LIVE, [engine])
    assert caught.value.stage == "likelihood" and engine.asked == []


def test_candidate_answers_are_compared_with_cached_answers_of_the_live_weights(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, engine = make_compared(), FakeEngine()
    gate.begin(trainers, 6, LIVE)
    for _ in range(2):
        gate.accept(trainers, gate.examine(trainers, CANDIDATE, LIVE, [engine]))
    assert engine.asked == [(3, 2), (4, 2), (4, 2)]
    engine.wrong = (4,)
    with pytest.raises(CandidateRejected, match=r"0% of the questions are answered correctly \(best version"):
        gate.examine(trainers, CANDIDATE, LIVE, [engine])


def test_the_best_share_of_correct_answers_survives_a_driver_restart(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate = make_compared()
    gate.begin(trainers, 6, LIVE)
    gate.accept(trainers, gate.examine(trainers, CANDIDATE, LIVE, [FakeEngine()]))
    again = make_compared()
    again.begin(trainers, 6, LIVE)
    with pytest.raises(CandidateRejected, match=r"correctly \(best version: 100%"):
        again.examine(trainers, CANDIDATE, LIVE, [FakeEngine(wrong=(3, 4))])


def test_an_engine_with_one_set_of_weights_skips_the_answer_check(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    class OneSet(FakeEngine):
        def try_weights(
            self,
            path: str,
            version: int,
            prompts: Sequence[list[int]],
            most: int,
            drafts: Sequence[list[int]] = (),
            temperature: float = 0.0,
        ) -> Any:
            return None

    gate = make_compared()
    gate.begin(trainers, 6, LIVE)
    assert "right" not in gate.examine(trainers, CANDIDATE, LIVE, [OneSet()])


def test_answers_are_checked_at_intervals_and_near_a_limit(
    make_compared: Callable[..., CandidateGate], trainers: FakeTrainers
) -> None:
    gate, engine = make_compared(gate_answers_every=3, gate_questions=0), FakeEngine()
    gate.begin(trainers, 6, LIVE)
    seen = []
    for _ in range(6):
        gate.accept(trainers, gate.examine(trainers, CANDIDATE, LIVE, [engine]))
        seen.append(len(engine.asked))
    assert seen == [0, 0, 2, 2, 2, 3], "the live version is asked at the first time alone"
    trainers.likelihood = {"a": [-1.05, -1.05], "b": [-1.0, -1.0]}
    gate.accept(trainers, gate.examine(trainers, CANDIDATE, LIVE, [engine]))
    assert len(engine.asked) == 4, "liked answers fell by half of what is allowed"
