"""Tests that a step that is too long is shortened along its direction, and no feedback is lost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.gate.gate import CandidateGate
from slime.gate.limits import largest_kl, lengths_allowed
from slime.gate.trust_region import TRIES, share_within
from slime.types import Sample
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

LIVE = WeightVersion(3, "/v3", "sum-3")
CANDIDATE = Candidate(WeightVersion(4, "/v4", "sum-4"), rollout_id=7, parent=3)
SAMPLES = """
def gate_samples(args, rollout_id, version):
    answer = {"tokens": [1, 2, 3], "response_length": 2}
    return [
        {**answer, "metadata": {"gate": "liked", "key": "a"}},
        {**answer, "metadata": {"gate": "recent", "key": "b"}},
    ]
"""


class Trainers:
    """A step whose log-probs and change are those of its `whole` length times the remaining share."""

    def __init__(self, recent: float = 0.0, liked: float = 0.0, change: float = 0.001) -> None:
        self.recent, self.liked, self.change = recent, liked, change
        self.left, self.written, self.travelled = 0.0, 0.0, 0.0
        self.calls: list[object] = []
        self.stubborn = False

    def step(self) -> None:
        self.left = self.written = 1.0

    def write(self) -> None:
        self.calls.append("write")
        self.written = self.left

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        return {"change": self.change * self.written}

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        way = self.travelled + self.left
        fall = {"recent": self.recent * way, "liked": self.liked * way}
        return [[-1.0 - fall[str(sample.metadata["gate"])]] * 2 for sample in samples]

    def keep_state(self) -> None:
        self.calls.append("keep")
        self.travelled += self.left
        self.left = 0.0

    def go_back(self) -> None:
        self.calls.append("back")

    def shrink(self, share: float) -> None:
        assert 0 < share < 1
        self.calls.append("shrink")
        self.left *= 1.0 if self.stubborn else share

    def scale_learning_rate(self, scale: float) -> None:
        self.calls.append(scale)

    def count(self, call: str) -> int:
        return self.calls.count(call)


MakeGate = Callable[..., CandidateGate]


@pytest.fixture
def make_gate(tmp_path: Path) -> MakeGate:
    (tmp_path / "samples.py").write_text(SAMPLES)
    (tmp_path / "hook.py").write_text(
        "def on_weights_rejected(args, rollout_id, version, rejection):\n"
        "    open(args.save + '/quarantined', 'w').close()\n"
    )

    def make(**flags: Any) -> CandidateGate:
        known = {"gate": True, "save": str(tmp_path), "gate_samples_path": str(tmp_path / "samples.py"),
                 "on_weights_rejected_path": str(tmp_path / "hook.py"), "gate_adapt_lr": True}  # fmt: skip
        return CandidateGate(Arguments(**{**known, **flags}))

    return make


def examined(gate: CandidateGate, trainers: Trainers, candidate: Candidate = CANDIDATE) -> dict[str, float]:
    """Examines a step; a rejection is executed and raised."""
    trainers.step()
    try:
        found = gate.examine(trainers, candidate, LIVE, write_again=trainers.write)
    except CandidateRejected as rejection:
        gate.reject(trainers, candidate, rejection)
        raise
    gate.accept(trainers, found)
    return found


def test_a_long_step_is_shortened_until_its_kl_is_within_the_limit(
    make_gate: MakeGate,
) -> None:
    gate, trainers = make_gate(), Trainers(recent=3.0)
    gate.begin(trainers, 6, LIVE)
    found = examined(gate, trainers)
    assert trainers.count("shrink") == 2, "one token counts 1 at most, so the first time was not enough"
    assert trainers.count("write") == 1 and trainers.count("back") == 0
    assert found["whole_kl"] == 1.0 and found["kl"] <= gate.args.gate_max_kl
    assert found["step_share"] == pytest.approx(trainers.written)
    assert found["change"] == pytest.approx(0.001 * trainers.written), "of the files that were written last"
    assert not (Path(gate.args.save) / "quarantined").exists()


@pytest.mark.parametrize("length", [0.5, 0.7, 1.0, 2.0, 5.0])
def test_every_step_ends_with_a_kl_of_at_most_half_its_limit(make_gate: MakeGate, length: float) -> None:
    gate, trainers = make_gate(), Trainers(recent=length)
    gate.begin(trainers, 6, LIVE)
    found = examined(gate, trainers)
    assert (0.03 if length <= 1 else 0.005) < found["kl"] <= 0.05 < found["whole_kl"]
    assert trainers.count("shrink") <= 3 and found["step_share"] < 1


def test_a_step_within_its_limits_is_unchanged(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(recent=0.2)
    gate.begin(trainers, 6, LIVE)
    found = examined(gate, trainers)
    assert found["step_share"] == 1.0 and found["whole_kl"] == found["kl"] > 0
    assert trainers.count("shrink") == trainers.count("write") == 0


def test_a_weight_change_beyond_its_limit_is_shortened_to_half_the_limit(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(change=0.4)
    gate.begin(trainers, 6, LIVE)
    found = examined(gate, trainers)
    assert found["change"] == pytest.approx(0.05) and found["step_share"] == pytest.approx(1 / 8)


def test_liked_answers_that_stay_likely_after_shrinking_are_no_reason_to_reject(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(liked=2.0)
    gate.begin(trainers, 6, LIVE)
    found = examined(gate, trainers)
    assert found["liked_loss"] == pytest.approx(0.05) and trainers.count("back") == 0


@pytest.mark.parametrize("broken", [{"recent": math.nan}, {"recent": math.inf}, {"change": math.nan}])
def test_a_step_that_is_not_finite_is_rejected_and_not_shortened(
    make_gate: MakeGate, broken: dict[str, float]
) -> None:
    gate, trainers = make_gate(), Trainers(**broken)
    trainers.step()
    gate.begin(Trainers(), 6, LIVE)
    with pytest.raises(CandidateRejected):
        examined(gate, trainers)
    assert trainers.count("shrink") == 0 and trainers.count("back") == 1
    assert (Path(gate.args.save) / "quarantined").exists()


def test_a_step_whose_kl_does_not_fall_with_its_length_is_rejected_in_the_end(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(recent=3.0)
    gate.begin(trainers, 6, LIVE)
    trainers.stubborn = True
    with pytest.raises(CandidateRejected, match="the KL to the live weights is 1 nats") as caught:
        examined(gate, trainers)
    assert caught.value.stage == "likelihood" and trainers.count("shrink") == TRIES
    assert caught.value.measurements["whole_kl"] == 1.0


def test_the_rate_adapts_to_the_kl_within_bounds_and_survives_a_restart(
    make_gate: MakeGate,
) -> None:
    gate, trainers = make_gate(), Trainers(recent=3.0)
    gate.begin(trainers, 6, LIVE)
    assert 1.0 in trainers.calls
    for _ in range(8):
        examined(gate, trainers)
    assert gate.rate() == 1 / 8 and 1 / 8 in trainers.calls
    assert gate.scale() == 1, "nothing was rejected, so training need not wait for versions"
    again, quiet = make_gate(), Trainers(recent=0.01)
    again.begin(quiet, 6, LIVE)
    assert 1 / 8 in quiet.calls
    for _ in range(9):
        examined(again, quiet)
    assert again.rate() == 2.0
    assert json.loads((Path(again.args.save) / "gate.json").read_text())["rate"] == 2.0
    steady = make_gate(gate_adapt_lr=False)
    assert steady.rate() == 1.0


def test_consecutive_rejections_halve_the_current_learning_rate(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(recent=math.nan)
    gate.begin(Trainers(), 6, LIVE)
    gate.history.rate = 0.5
    for _ in range(2):
        with pytest.raises(CandidateRejected):
            examined(gate, trainers)
    assert gate.rate() == 0.25 and trainers.calls[-1] == 0.25


def test_the_kl_limit_grows_with_the_distance_to_the_hinted_teacher(make_gate: MakeGate) -> None:
    gate, trainers = make_gate(), Trainers(recent=0.5)
    gate.begin(trainers, 6, LIVE)
    taught = Candidate(CANDIDATE.weights, 7, 3, metrics={"train/teacher_kl": 2.0})
    found = examined(gate, trainers, taught)
    assert found["kl"] > gate.args.gate_max_kl / 2 and found["most_kl"] == 0.5
    assert found["step_share"] == 1.0 and found["teacher_kl"] == 2.0
    assert examined(gate, trainers)["step_share"] < 1, "without a hint the flag alone counts"
    near = [largest_kl({"teacher_kl": kl}, gate.args) for kl in (0.05, 0.15, 0.3, 2.0, math.inf)]
    assert near == [0.1, 0.15, 0.3, 0.5, 0.1]


@pytest.mark.parametrize(
    ("teacher_kl", "kl"), [(0.0, 0.05), (0.08, 0.08), (0.15, 0.15), (0.3, 0.3), (1.2, 0.5)]
)
def test_a_step_may_move_as_far_as_a_nearby_hinted_teacher(
    make_gate: MakeGate, teacher_kl: float, kl: float
) -> None:
    args = make_gate().args
    assert share_within({"kl": kl, "teacher_kl": teacher_kl}, args) == 1
    assert share_within({"kl": 1.01 * kl, "teacher_kl": teacher_kl}, args) < 1


def test_answers_may_become_as_long_as_liked_ones() -> None:
    assert lengths_allowed({"length": 90.0}) == (30.0, 270.0)
    assert lengths_allowed({"length": 90.0, "liked_length": 12.0}) == (12.0, 270.0)
    assert lengths_allowed({"length": 90.0, "taught_length": 30.0}) == (10.0, 270.0)
    assert lengths_allowed({"length": 20.0, "liked_length": 100.0}) == (pytest.approx(20 / 3), 100.0)
