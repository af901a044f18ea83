"""A loop with the gate in one process: a good update passes, and corrupt ones are rejected or harmless."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator

import pytest
import torch

from claw_lab.benchmarks.learning.gate_cost import cost
from claw_lab.offline.bad_updates import SPOILT, Bench
from claw_lab.offline.gated import FLAGS, GatedLoop
from claw_lab.offline.local_loop import ChatModel, Talk
from claw_lab.offline.methods import METHODS, Setting
from openclaw_test.people.scripted_user import ScriptedUser
from tests import MODEL

PROBLEMS = 40


@pytest.fixture
def bench() -> Iterator[Bench]:
    """Yields the state after a student's first batch."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    loop = GatedLoop(ChatModel(str(MODEL)), Setting(METHODS["topk_select"], extra=FLAGS), seed=0)
    user, number = ScriptedUser(0), 0
    while loop.version == 0:
        session, number = user.session(), number + 1
        talk = Talk([], f"session-{number}", person="student")
        said: str | None = session.opening
        while said is not None:
            loop.follow(talk, said)
            said = session.next_message(loop.say([talk])[0])
            loop.learn()
        loop.end(talk)
    yield Bench(loop, PROBLEMS)
    loop.close()
    torch.set_num_threads(threads)


def test_a_gate_accepts_good_updates_and_rejects_bad_ones(bench: Bench) -> None:
    """One test, because the preceding conversation takes most of its time."""
    loop = bench.loop
    assert loop.rejections == [] and loop.undone == [] and loop.live.version == 1
    assert loop.gate.history.good == 1 and loop.gate.history.questions == 192
    before = copy.deepcopy(dict(loop.chat.engine.tensors()))
    for kind in SPOILT:
        found = bench.attempt(kind, 1.0, random.Random(kind))
        assert (found.stage, found.fall) == ("files", None), f"{kind} never answers"
    for kind in ("10 x learning rate", "one repeated answer", "praised wrong answers"):
        found = bench.attempt(kind, 30.0, random.Random(kind))
        assert found.stage or (found.fall is not None and found.fall < 0.04), found
    after = loop.chat.engine.tensors()
    assert all(torch.equal(before[name], after[name]) for name in before), "the loop is as it was"


def test_the_cost_of_the_gate_is_its_delay_relative_to_training_time() -> None:
    rows = [
        {
            "perf/train_time": 1.0,
            "gate/seconds": 0.7,
            "gate/held": 0.1,
            "gate/looked": 1.0,
            "gate/rejected": 0.0,
        },
        {
            "perf/train_time": 3.0,
            "gate/seconds": 0.9,
            "gate/held": 0.9,
            "gate/looked": 0.0,
            "gate/rejected": 1.0,
        },
        {"perf/train_time": 9.0},
    ]
    found = cost(rows)
    assert found["held_over_training"] == 0.25 and found["late_s"] == 0.7
    assert (found["training_s"], found["training_beside_s"]) == (2.0, 3.0)
    assert (found["updates"], found["rejected"], found["answered_before_live"]) == (2, 1, 1)
    assert cost([]) == {}
