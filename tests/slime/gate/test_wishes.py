"""Tests explicit requests: an update that no longer obeys them does not go live."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.errors import EngineError
from slime.gate.gate import CandidateGate
from slime.gate.sampled import Tried, share_obeyed
from slime.types import Sample
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion

WISHES = 10
HOOKS = """
def gate_samples(args, rollout_id, version):
    return [
        {"tokens": [1, at], "response_length": 0, "label": "^1[.]", "metadata": {"gate": "wish", "key": str(at)}}
        for at in range(WISHES)
    ]
"""


class Trainers:
    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        return {"change": 0.001}

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        return [[] for _ in samples]

    def keep_state(self) -> None: ...

    def go_back(self) -> None: ...

    def shrink(self, share: float) -> None: ...
    def scale_learning_rate(self, scale: float) -> None: ...


class Engine:
    """`obeys`: number of requests answered with the list that they ask for, by version; `obeys_sampled`: the same at
    a temperature above 0, if different, one number for each time that the version is asked."""

    def __init__(self, obeys: dict[int, int]) -> None:
        self.obeys, self.obeys_sampled = obeys, dict[int, list[int]]()
        self.sampled: list[int] = []
        self.asked: list[int] = []
        self.put: list[int] = []

    def discard(self) -> None: ...

    def try_weights(
        self,
        path: str,
        version: int,
        prompts: Sequence[list[int]],
        most: int,
        drafts: Sequence[list[int]] = (),
        temperature: float = 0.0,
    ) -> Any:
        (self.sampled if temperature else self.asked).append(version)
        self.put.append(len(prompts))
        obeys = self.obeys[version]
        if temperature and version in self.obeys_sampled:
            obeys = self.obeys_sampled[version].pop(0)
        texts = [
            "Sure:\n1. Add.\n2. Done." if prompt[1] < obeys else "All in one line, 1. and 2."
            for prompt in prompts
        ]
        return [{"ids": [7, 2], "log_probs": [-0.1] * 2, "text": text, "ended": True} for text in texts]


class Loop:
    def __init__(self, folder: Path, obeys: dict[int, int], wishes: int = WISHES, **flags: Any) -> None:
        hooks = folder / "hooks.py"
        hooks.write_text(f"WISHES = {wishes}\n{HOOKS}")
        told = {"gate": True, "save": str(folder), "gate_samples_path": str(hooks)}
        self.gate = CandidateGate(Arguments(**{**told, **flags}))
        self.engine, self.trainers, self.live = Engine(obeys), Trainers(), WeightVersion(0, "/v0", "sum-0")
        self.gate.begin(self.trainers, -1, self.live)

    def publish(self, number: int) -> dict[str, float]:
        candidate = Candidate(
            WeightVersion(number, f"/v{number}", f"sum-{number}"), number, self.live.version
        )
        try:
            found = self.gate.examine(self.trainers, candidate, self.live, [self.engine])
        except CandidateRejected as rejection:
            self.gate.reject(self.trainers, candidate, rejection)
            raise
        self.live = candidate.weights
        self.gate.accept(self.trainers, found)
        return found


@pytest.fixture
def loop(tmp_path: Path) -> Callable[..., Loop]:
    return lambda obeys, **flags: Loop(tmp_path, obeys, **flags)


def test_every_update_is_tested_on_requests_and_rejected_if_it_lost_them(
    loop: Callable[..., Loop],
) -> None:
    run = loop({0: 10, 1: 9, 2: 8, 3: 5})
    assert run.publish(1)["obeyed"] == 0.9
    assert run.publish(2)["obeyed"] == 0.8
    with pytest.raises(CandidateRejected, match="50% of the explicit requests") as rejected:
        run.publish(3)
    assert rejected.value.stage == "wishes" and rejected.value.measurements["obeyed"] == 0.5
    assert run.live.version == 2 and not run.gate.history.suspect
    assert run.engine.asked == [0, 1, 2, 3, 2], "the live weights once more before one is rejected"
    assert run.engine.sampled == [2, 2, 2, 3, 3, 3], "and both by sampled answers"
    assert run.engine.put[-6:] == [3] * 6, "to the three wishes whose answers differ"


def test_a_loss_within_the_standard_error_of_flipped_answers_is_accepted(loop: Callable[..., Loop]) -> None:
    run = loop({0: 10, 1: 7})
    assert run.publish(1)["obeyed"] == 0.7, "0.17 above, with three flipped answers of ten, is over the floor"


def test_an_update_that_lost_requests_only_at_temperature_0_goes_live(loop: Callable[..., Loop]) -> None:
    run = loop({0: 10, 1: 5})
    run.engine.obeys_sampled = {0: [9] * 3, 1: [8] * 3}
    found = run.publish(1)
    assert (found["obeyed"], found["obeyed_sampled"]) == (0.5, pytest.approx(0.8))


def test_the_standard_error_of_sampled_answers_counts_in_favour_of_an_update(
    loop: Callable[..., Loop],
) -> None:
    run = loop({0: 10, 1: 6, 2: 6}, gate_min_obeyed=0.9)
    run.engine.obeys_sampled = {0: [10] * 6, 1: [6, 6, 7], 2: [6, 8, 7]}
    with pytest.raises(CandidateRejected, match="63% of the explicit requests") as rejected:
        run.publish(1)
    assert rejected.value.measurements["obeyed_error"] == pytest.approx(1 / 30)
    found = run.publish(2)
    assert found["obeyed_sampled"] == pytest.approx(0.7)
    assert found["obeyed_error"] == pytest.approx((2 * 1 / 3 * 2 / 3 / 2) ** 0.5 / 10)


def test_the_standard_error_of_the_live_weights_counts_too(loop: Callable[..., Loop]) -> None:
    run = loop({0: 10, 1: 8, 2: 5, 3: 5})
    run.publish(1)
    run.engine.obeys[1] = 7  # it was measured better than it is
    # 6.33 of 10, with a standard error of 0.47
    run.engine.obeys_sampled = {1: [7, 7, 5] * 2, 2: [5] * 3, 3: [6] * 3}
    with pytest.raises(
        CandidateRejected, match=r"50% of the explicit requests are obeyed \(live weights: 63%"
    ):
        run.publish(2)
    assert run.publish(3)["obeyed_sampled"] == pytest.approx(0.6)


def test_an_engine_that_ends_while_it_samples_answers_rejects_no_update(
    loop: Callable[..., Loop], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = loop({0: 10, 1: 7})
    greedy = run.engine.try_weights

    def ends(
        path: str, version: int, prompts: Any, most: int, drafts: Any = (), temperature: float = 0.0
    ) -> Any:
        if temperature and version == 1:
            raise EngineError("it ended")
        return greedy(path, version, prompts, most, drafts, temperature)

    monkeypatch.setattr(run.engine, "try_weights", ends)
    assert "obeyed_sampled" not in run.publish(1)


def test_an_update_as_compliant_as_the_live_weights_is_accepted(
    loop: Callable[..., Loop],
) -> None:
    run = loop({0: 10, 1: 8, 2: 5, 3: 6})
    run.publish(1)
    run.engine.obeys[1] = 5  # it was measured better than it is
    assert run.publish(2)["obeyed"] == 0.5
    assert run.publish(3)["obeyed"] == 0.6


def test_the_threshold_is_a_share_of_the_reference_versions_score(loop: Callable[..., Loop]) -> None:
    run = loop({0: 10, 1: 8, 2: 6}, gate_min_obeyed=0.9)
    run.publish(1)
    with pytest.raises(CandidateRejected, match="reference version: 100%"):
        run.publish(2)


def test_the_reference_score_survives_a_driver_restart(loop: Callable[..., Loop], tmp_path: Path) -> None:
    loop({0: 10, 1: 8}).publish(1)
    again = loop({0: 8, 1: 5})
    with pytest.raises(CandidateRejected, match="reference version: 100%"):
        again.publish(1)


def test_each_update_is_tested_on_half_of_the_requests_and_on_all_after_two_losses(
    loop: Callable[..., Loop],
) -> None:
    run = loop({0: 80, 1: 80, 2: 80, 3: 80, 4: 76, 5: 40}, wishes=80, gate_min_obeyed=0.9)
    run.publish(1)
    assert run.engine.put == [80, 80], "the first time all, of both"
    run.engine.put.clear()
    assert (run.publish(2)["wishes"], run.publish(3)["wishes"]) == (40, 40)
    assert run.publish(4)["obeyed"] == 76 / 80
    assert run.engine.put == [40, 40, 40, 40], "two of the half were lost"
    with pytest.raises(CandidateRejected, match="40 explicit requests are no longer obeyed"):
        run.publish(5)


def test_gradually_lost_requests_are_detected_once_significant(
    loop: Callable[..., Loop],
) -> None:
    run = loop({at: 80 - at for at in range(10)}, wishes=80, gate_min_obeyed=0.1)
    for number in range(1, 7):
        run.publish(number)
    with pytest.raises(CandidateRejected, match="7 explicit requests are no longer obeyed") as rejected:
        run.publish(7)
    assert rejected.value.stage == "wishes" and run.live.version == 6


def test_the_first_versions_outcomes_survive_a_restart_and_old_files_are_read(
    loop: Callable[..., Loop], tmp_path: Path
) -> None:
    loop({0: 80, 1: 79}, wishes=80).publish(1)
    again = loop({0: 79, 1: 72}, wishes=80, gate_min_obeyed=0.1)
    with pytest.raises(CandidateRejected, match="8 explicit requests"):
        again.publish(1)
    (tmp_path / "gate.json").write_text('{"right": 0.9, "obeyed": 0.9, "what_is_not_known": 1}')
    old = loop({0: 9, 1: 9})
    assert (old.gate.history.right, old.gate.history.reference) == (0.9, {})
    old.publish(1)
    assert sum(old.gate.history.reference["wish"].values()) == 9


def test_a_run_with_only_requests_tests_its_first_weights_in_the_background(
    loop: Callable[..., Loop],
) -> None:
    run = loop({0: 10, 1: 10})
    run.gate.begin(run.trainers, -1, run.live, [run.engine])
    assert run.gate.audit.running is not None
    run.gate.audit.running.result(20)
    assert run.gate.audit.collect() is None and run.gate.history.good == 0
    assert run.publish(1)["obeyed"] == 1.0 and run.engine.asked == [0, 1], "the live weights are asked once"


@pytest.mark.parametrize(
    ("text", "obeys"), [("1. Add.", True), ("So:\n1. Add.", True), ("It is 1. Add.", False)]
)
def test_a_form_is_found_at_the_start_of_any_line(text: str, obeys: bool) -> None:
    assert share_obeyed([Tried([1], [0.0], text, True)], ["^1[.]"]) == float(obeys)
