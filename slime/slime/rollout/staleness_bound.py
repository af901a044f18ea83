"""Bounded staleness: which groups may start, and which a batch has to take, so that none gets too old. Pure.

Every group that is started is trained on (unless a filter drops it): nothing slow is thrown away for its age, which
would teach the model on short answers only. With a bound of s, a group that starts when n rollouts are trained has
to be in the batch of rollout n + s or earlier. That can always be kept, because of two rules:

* A group starts only while fewer than (n + s + 1 - r) * B groups are started and not handed out, where r is the next
  rollout to hand out and B the groups of a batch: all of them fit into the batches up to rollout n + s.
* A batch takes the groups that are due first, and waits for one that is under way where leaving it out would push
  more groups into the batches up to some rollout than these hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable


def may_start(started: int, trained: int, next_rollout: int, batch: int, staleness: int) -> bool:
    """Whether one more group may start while `started` groups are neither handed out nor dropped."""
    return started < (trained + staleness + 1 - next_rollout) * batch


def missing(due: Iterable[int], due_finished: Iterable[int], rollout: int, batch: int) -> int:
    """How many groups that are under way the batch of `rollout` has to wait for; 0 means it can go, if it is full.

    Args:
        due: the rollout at which each started group is due at the latest, finished or not.
        due_finished: the same of those that are finished.
    """
    all_by, done_by = Counter(due), Counter(due_finished)
    total = finished = wait = 0
    for latest in sorted(all_by):
        total, finished = total + all_by[latest], finished + done_by[latest]
        room_later = max(latest - rollout, 0) * batch
        must_go = min(max(total - room_later, 0), batch)
        wait = max(wait, must_go - finished)
    return wait
