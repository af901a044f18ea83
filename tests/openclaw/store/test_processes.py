"""Real processes on one store: kill -9, and concurrent access."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from openclaw.store import RolloutStore
from openclaw.types import TurnState

pytestmark = pytest.mark.every_database

COMMON = """
import asyncio, sys
from openclaw.types import Drop, NewTurn, SampleDraft
from openclaw.store import RolloutStore, StoreWriter

def turn(name):
    return NewTurn(
        completion_id=name,
        session_id=name.split("-")[0],
        messages=[{"role": "user", "content": name}],
        response_message={"role": "assistant", "content": "4"},
        prompt_ids=list(range(500)),
        completion_ids=[1],
        completion_log_probs=[-0.5],
        version_spans=[(0, 0, 1)],
        sampling={"temperature": 1.0},
        finish_reason="stop",
        transcript_digest=name,
    )

def say(*words):
    print(*words, flush=True)

store = RolloutStore(sys.argv[1])
name = sys.argv[2]
"""

ENDLESS_GATEWAY = """
writer = StoreWriter(store.database)
async def client(number):
    for index in range(10**6):
        stored = await writer.submit(lambda: store.turns.record(turn(f"{name}{number}-{index}")))
        say(stored.completion_id)
async def main():
    await asyncio.gather(*(client(number) for number in range(8)))
asyncio.run(main())
"""

GATEWAY = """
for index in range(15):
    stored = store.turns.record(turn(f"{name}-{index}"))
    store.turns.answer(stored.id, [{"role": "user", "content": "Thanks"}])
"""

OPEN_TRANSACTION = """
with store.database.transaction():
    store.turns.record(turn("half-1"))
    store.turns.record(turn("half-2"))
    say("open")
    sys.stdin.read()
"""

JUDGE = """
judged = 0
while judged < int(sys.argv[3]):
    for claimed in store.judgements.claim(name, 3, 30.0):
        assert store.judgements.finish(claimed.id, [], SampleDraft(turn_id=claimed.id, reward=1.0))
        say(claimed.completion_id)
    judged = store.status.counts()["turns"].get("judged", 0)
"""

REMEMBERING_JUDGE = """
from openclaw.types import Judgement, Vote
import dataclasses

for index in range(10**6):
    new = dataclasses.replace(turn(f"{name}-{index}"), person=f"ada {index}", memory=[])
    stored = store.turns.record(new)
    store.turns.answer(stored.id, [{"role": "user", "content": "not like that"}])
    votes = [Vote(score=1, hint=f"wish {index}")]
    found = [Judgement(kind="hint", score=1.0, votes=votes, judge="test", hints=[f"wish {index}"])]
    assert store.judgements.finish(stored.id, found, Drop("test"))
    say(index)
"""

TRAINER = """
rollout_id, trained = 0, 0
while trained < int(sys.argv[3]):
    for sample in store.samples.lease(rollout_id, 7, trainer=name):
        say(sample.turn.completion_id)
    store.samples.commit_lease(rollout_id, rollout_id + 1, trainer=name)
    rollout_id += 1
    trained = store.status.counts()["samples"].get("trained", 0)
"""


@contextmanager
def running(script: str, *args: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", COMMON + script, *map(str, args)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def _finish(process: subprocess.Popen[str]) -> list[str]:
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    return out.split()


def test_what_was_committed_survives_kill_9(location: str) -> None:
    with running(ENDLESS_GATEWAY, location, "g") as gateway:
        assert gateway.stdout is not None
        seen = [gateway.stdout.readline().strip() for _ in range(300)]
        gateway.kill()
        seen += gateway.stdout.read().split("\n")[:-1]  # a line without its end does not count
    store = RolloutStore(location)
    assert len(seen) == len(set(seen)) >= 300
    for completion_id in seen:
        stored = store.turns.get_by_completion(completion_id)
        assert stored is not None and stored.state is TurnState.CAPTURED and len(stored.prompt_ids) == 500
    with store.database.reading() as connection:
        bodies = connection.exec_driver_sql("SELECT count(*) FROM turn_body").scalar_one()
        if connection.dialect.name == "sqlite":
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
    assert store.status.counts()["turns"] == {"captured": bodies}
    store.close()


def test_a_killed_transaction_leaves_no_rows_and_no_lock(location: str) -> None:
    store = RolloutStore(location)
    with running(OPEN_TRANSACTION, location, "half") as writer:
        assert writer.stdout is not None and writer.stdout.readline() == "open\n"
        writer.kill()
        writer.wait()
    assert store.status.counts()["turns"] == {}
    store.sessions.touch("next")
    assert store.sessions.get("next") is not None and store.sessions.get("half") is None
    store.close()


def test_a_stored_preference_survives_kill_9_together_with_its_judgement(location: str) -> None:
    with running(REMEMBERING_JUDGE, location, "j") as judge:
        assert judge.stdout is not None
        seen = [int(judge.stdout.readline()) for _ in range(40)]
        judge.kill()
        seen += [int(line) for line in judge.stdout.read().split("\n")[:-1]]
    store = RolloutStore(location)
    wishes = {wish.person: wish.text for wish in store.memory.wishes()}
    judged = store.status.counts()["turns"]["judged"]
    assert wishes == {f"ada {index}": f"wish {index}" for index in range(judged)}
    assert judged in (len(seen), len(seen) + 1)
    assert [wish.text for wish in store.memory.remembered(f"ada {seen[-1]}")] == [f"wish {seen[-1]}"]
    store.close()


def test_gateways_judges_and_trainers_use_one_store_concurrently(location: str) -> None:
    RolloutStore(location).close()
    with ExitStack() as stack:
        gateways = [stack.enter_context(running(GATEWAY, location, name)) for name in ("g1", "g2")]
        judges = [stack.enter_context(running(JUDGE, location, name, 30)) for name in ("j1", "j2")]
        trainers = [stack.enter_context(running(TRAINER, location, name, 30)) for name in ("t1", "t2")]
        for gateway in gateways:
            _finish(gateway)
        judged = [turn for judge in judges for turn in _finish(judge)]
        trained = [turn for trainer in trainers for turn in _finish(trainer)]
    everything = sorted(f"{gateway}-{index}" for gateway in ("g1", "g2") for index in range(15))
    assert sorted(judged) == everything
    assert sorted(trained) == everything
    store = RolloutStore(location)
    assert store.status.counts()["samples"] == {"trained": 30}
    store.close()


def test_many_processes_may_create_the_database_concurrently(location: str) -> None:
    with ExitStack() as stack:
        processes = [stack.enter_context(running("say('made')", location, n)) for n in range(3)]
        assert [_finish(process) for process in processes] == [["made"]] * 3
