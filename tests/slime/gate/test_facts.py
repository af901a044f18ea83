"""Tests facts of a pool: the model must keep those that it knew at first, and a sample of them is asked at each
update."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from slime.arguments import Arguments
from slime.gate.gate import CandidateGate
from slime.gate.wishes import DRAWN
from slime.weights.update import Candidate, CandidateRejected
from slime.weights.versions import WeightVersion
from tests.slime.gate.test_wishes import Trainers

POOL, KNOWN = 60, 40
HOOKS = f"""
def gate_samples(args, rollout_id, version):
    return [
        {{
            "tokens": [1, at], "response_length": 0, "label": f"fact {{at}}",
            "metadata": {{"gate": "fact", "key": str(at)}},
        }}
        for at in range({POOL})
    ]
"""


class Engine:
    """Knows the first `KNOWN` facts, except those that a version has lost."""

    def __init__(self) -> None:
        self.lost: dict[int, set[int]] = {}
        self.asked: list[tuple[int, list[int]]] = []
        self.most: set[int] = set()
        self.drafts: list[int] = []

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
        facts = [prompt[1] for prompt in prompts]
        self.asked.append((version, facts))
        self.drafts.append(sum(map(bool, drafts)))
        self.most.add(most)
        lost = self.lost.get(version, set())
        texts = [f"It is fact {at}." if at < KNOWN and at not in lost else "No idea." for at in facts]
        return [{"ids": [7, 2], "log_probs": [-0.1] * 2, "text": text, "ended": True} for text in texts]


class Loop:
    def __init__(self, folder: Path) -> None:
        hooks = folder / "hooks.py"
        hooks.write_text(HOOKS)
        self.gate = CandidateGate(Arguments(gate=True, save=str(folder), gate_samples_path=str(hooks)))
        self.engine, self.trainers, self.live = Engine(), Trainers(), WeightVersion(0, "/v0", "sum-0")
        self.gate.begin(self.trainers, -1, self.live, [self.engine])
        deadline = time.monotonic() + 20
        while len(self.gate.history.known) < POOL and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sum(self.gate.history.known.values()) == KNOWN
        self.engine.asked.clear()

    def publish(self, number: int) -> dict[str, float]:
        weights = WeightVersion(number, f"/v{number}", f"sum-{number}")
        candidate = Candidate(weights, number, self.live.version)
        try:
            found = self.gate.examine(self.trainers, candidate, self.live, [self.engine])
        except CandidateRejected as rejection:
            self.gate.reject(self.trainers, candidate, rejection)
            raise
        self.live = candidate.weights
        self.gate.accept(self.trainers, found)
        return found


@pytest.fixture
def loop(tmp_path: Path) -> Callable[[], Loop]:
    return lambda: Loop(tmp_path)


def test_each_update_is_asked_different_known_facts(loop: Callable[[], Loop]) -> None:
    run = loop()
    first, second, third = (run.publish(number) for number in (1, 2, 3))
    asked = [facts for _, facts in run.engine.asked]
    assert [len(facts) for facts in asked] == [DRAWN] * 3 and not set(asked[0]) & set(asked[1])
    assert set(asked[0]) | set(asked[1]) | set(asked[2]) == set(range(KNOWN)), "all in three versions"
    assert {found["facts_kept"] for found in (first, second, third)} == {1.0}
    assert run.engine.most == {32} and run.engine.drafts[-1] == DRAWN, "short, and with drafts"


def test_an_update_that_lost_many_facts_is_rejected_but_not_one_that_lost_few(
    loop: Callable[[], Loop],
) -> None:
    run = loop()
    run.engine.lost = {1: {0, 1, 2}, 2: set(range(0, KNOWN, 2))}
    assert run.publish(1)["facts_kept"] >= 1 - 3 / DRAWN
    with pytest.raises(CandidateRejected, match="of 16 known facts are answered incorrectly") as rejected:
        run.publish(2)
    assert rejected.value.stage == "facts" and rejected.value.measurements["facts"] == DRAWN
    assert [one for one, _ in run.engine.asked] == [1, 2, 1], "the live version before one is rejected"


def test_an_update_with_the_live_versions_losses_is_accepted(
    loop: Callable[[], Loop],
) -> None:
    run = loop()
    run.engine.lost = {0: set(range(KNOWN)), 1: set(range(KNOWN))}
    assert run.publish(1)["facts_kept"] == 0.0


def test_known_facts_survive_a_driver_restart(loop: Callable[[], Loop], tmp_path: Path) -> None:
    loop().publish(1)
    again = loop()
    again.publish(1)
    assert [one for one, _ in again.engine.asked] == [1], "nothing of the pool is asked again"
