"""Adapters are trained alternately, each only from its own turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from openclaw.errors import ConfigError
from openclaw.store import RolloutStore
from openclaw.trainer_hooks import adapter_turns, lease, pipeline
from openclaw.trainer_hooks.arguments import HookSettings
from openclaw.trainer_hooks.rejection import on_weights_rejected
from openclaw.types import SampleState, Turn, policy_of
from tests.fakes.hook_flags import hook_flags

MakeSample = Callable[..., Turn]
LIVE = {"path": "folder", "parent": None, "checksum": "sum", "restored": False}


@pytest.fixture
def args(location: str) -> Iterator[SimpleNamespace]:
    yield hook_flags(location, rollout_batch_size=2, batch_timeout=60.0, train_adapters="per-key")
    pipeline._made.clear()
    adapter_turns._last_turns.clear()


@pytest.fixture
def say(make_sample: MakeSample) -> Callable[..., list[str]]:
    """say(name, count): makes this many turns of an adapter ready."""

    def make(name: str | None, count: int = 2, **changes: object) -> list[str]:
        return [make_sample(policy_id=policy_of("policy", name), **changes).id for _ in range(count)]

    return make


def turn(args: SimpleNamespace, rollout_id: int) -> tuple[str, list[str]]:
    found = lease.generate_rollout(args, rollout_id)
    return found["policy"], [row["metadata"]["turn_id"] for row in found["samples"]]


def live(args: SimpleNamespace, name: str, rollout_id: int, version: int) -> None:
    lease.on_weights_live(adapter_turns.for_adapter(args, name), rollout_id, version, LIVE)


def test_a_batch_contains_and_commits_one_adapters_turns_only(
    args: SimpleNamespace, store: RolloutStore, say: Callable[..., list[str]]
) -> None:
    ada, bob = say("ada"), say("bob")
    say(None)
    assert turn(args, 0) == ("ada", ada) and turn(args, 0) == ("ada", ada)
    assert turn(args, 1) == ("bob", bob)
    live(args, "ada", 0, 1)
    assert store.samples.of_turn(ada[0]).state is SampleState.TRAINED  # type: ignore[union-attr]
    assert store.samples.of_turn(bob[0]).state is SampleState.LEASED  # type: ignore[union-attr]
    live(args, "bob", 1, 1)
    assert store.policies.waiting() == [], "what the base answered is nobody's turn"
    assert adapter_turns.due_adapter(args, 2) is None
    assert store.samples.ready_count() == 2


def test_an_active_person_does_not_delay_others(args: SimpleNamespace, say: Callable[..., list[str]]) -> None:
    say("ada", 8)
    say("bob", 2)
    say("cem", 1)
    assert [turn(args, rollout_id)[0] for rollout_id in range(3)] == ["ada", "bob", "ada"]
    say("cem", 1)
    assert [turn(args, rollout_id)[0] for rollout_id in range(3, 5)] == ["cem", "ada"]


def test_a_single_adapter_waits_for_its_own_batch(
    args: SimpleNamespace, say: Callable[..., list[str]]
) -> None:
    say("ada", 1)
    say("bob", 1)
    assert adapter_turns.due_adapter(args, 0) is None, "two halves are no batch"
    args.batch_timeout = 1e-9
    assert {turn(args, 0)[0], turn(args, 1)[0]} == {"ada", "bob"}


def test_after_a_kill_a_rollout_is_assigned_to_the_same_adapter(
    args: SimpleNamespace, say: Callable[..., list[str]]
) -> None:
    say("ada")
    bob = say("bob")
    assert turn(args, 0)[0] == "ada"
    assert turn(args, 1) == ("bob", bob)
    pipeline._made.clear()
    adapter_turns._last_turns.clear()
    say("ada")
    assert turn(args, 1) == ("bob", bob), "its lease comes before the turn of any other"


def test_a_restored_adapter_releases_its_own_leases(
    args: SimpleNamespace, store: RolloutStore, say: Callable[..., list[str]]
) -> None:
    ada, bob = say("ada"), say("bob")
    turn(args, 0)
    turn(args, 1)
    mine = adapter_turns.for_adapter(args, "ada")
    lease.on_weights_live(mine, -1, 0, LIVE | {"restored": True})
    states = [store.samples.of_turn(one).state for one in (ada[0], bob[0])]  # type: ignore[union-attr]
    assert states == [SampleState.READY, SampleState.LEASED]


def test_a_rejected_step_quarantines_only_its_own_turns(
    args: SimpleNamespace, store: RolloutStore, say: Callable[..., list[str]]
) -> None:
    ada, bob = say("ada"), say("bob")
    turn(args, 0)
    turn(args, 1)
    rejection = {"reason": "bad", "stage": "files", "measurements": {}, "parent": 0, "checksum": "s"}
    on_weights_rejected(adapter_turns.for_adapter(args, "ada"), 0, 1, rejection)
    states = [store.samples.of_turn(one).state for one in (ada[0], bob[0])]  # type: ignore[union-attr]
    assert states == [SampleState.QUARANTINED, SampleState.LEASED]


def test_all_adapters_share_one_connection_to_the_store(
    args: SimpleNamespace, say: Callable[..., list[str]]
) -> None:
    say("ada")
    say("bob")
    adapter_turns.due_adapter(args, 0)
    assert len({id(one.store) for one in pipeline._made.values()}) == 1 and len(pipeline._made) == 3


def test_trust_is_rejected_with_adapters_of_people(location: str) -> None:
    with pytest.raises(ConfigError, match="people who share"):
        adapter_turns.check(HookSettings.of(hook_flags(location, train_adapters="ada", trust="facts")))
    adapter_turns.check(HookSettings.of(hook_flags(location, trust="facts")))
