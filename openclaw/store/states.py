"""The two state machines. Every change of a state goes through `check_turn` or `check_sample`."""

from __future__ import annotations

from openclaw.errors import StoreError
from openclaw.types import SampleState, TurnState

FIRST_TURN_STATES = frozenset(
    {TurnState.CAPTURED, TurnState.SIDE, TurnState.ABORTED, TurnState.UNTRAINABLE, TurnState.IMPORTED}
)
"""States a turn may be recorded in."""

TURN_MOVES: dict[TurnState, frozenset[TurnState]] = {
    TurnState.CAPTURED: frozenset({TurnState.ANSWERED, TurnState.EXPIRED}),
    TurnState.IMPORTED: frozenset({TurnState.ANSWERED}),
    TurnState.ANSWERED: frozenset({TurnState.JUDGED}),
    TurnState.EXPIRED: frozenset({TurnState.ANSWERED}),
    TurnState.JUDGED: frozenset({TurnState.ANSWERED}),
}

"""Back to answered, expired and judged turns go by a person's feedback only."""

SAMPLE_MOVES: dict[SampleState, frozenset[SampleState]] = {
    SampleState.READY: frozenset({SampleState.LEASED, SampleState.DROPPED}),
    SampleState.LEASED: frozenset(
        {SampleState.TRAINED, SampleState.READY, SampleState.DROPPED, SampleState.QUARANTINED}
    ),
    SampleState.TRAINED: frozenset({SampleState.READY, SampleState.QUARANTINED}),
    SampleState.QUARANTINED: frozenset({SampleState.READY, SampleState.TRAINED, SampleState.DROPPED}),
}
"""Back to ready: a released lease, a sample whose versions were all rolled back, one released from quarantine.
From quarantine to trained: the version that learned from it was brought back."""


def check_turn(turn_id: str, state: str, to: TurnState) -> None:
    """Raises StoreError when a turn in `state` may not become `to`."""
    if to not in TURN_MOVES.get(TurnState(state), frozenset()):
        raise StoreError(f"turn {turn_id} is {state}: it cannot become {to}")


def check_sample(sample_id: int, state: str, to: SampleState) -> None:
    """Raises StoreError when a sample in `state` may not become `to`."""
    if to not in SAMPLE_MOVES.get(SampleState(state), frozenset()):
        raise StoreError(f"sample {sample_id} is {state}: it cannot become {to}")
