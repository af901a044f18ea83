"""Divides samples by length into optimizer steps, ranks and micro-batches. A pure function without torch.

Every rank computes the same schedule from the same lengths and selects its part, so ranks cannot disagree.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass

from slime.training.prefixes import Prefixes

NOTHING_TO_TRAIN = "no trained token"
SURPLUS = "beyond the last full global batch"

MicroBatch = tuple[int, ...]  # positions of samples in the rollout; may be empty
Load = Callable[[list[int]], int]  # returns the memory use of samples in one micro-batch, in tokens


@dataclass(frozen=True)
class Step:
    """One optimizer step.

    Attributes:
        ranks: [rank][micro-batch]; every rank has the same number of micro-batches.
        num_samples, num_tokens: samples and trained tokens of the step on all ranks; denominators of its
            loss.
        kinds: kind of the samples in each micro-batch, equal on all ranks; None comes first. Empty: all are
            None.
    """

    ranks: tuple[tuple[MicroBatch, ...], ...]
    num_samples: int
    num_tokens: int
    kinds: tuple[Hashable, ...] = ()

    @property
    def samples(self) -> tuple[int, ...]:
        """Returns the sorted positions of all samples of the step."""
        return tuple(sorted(i for rank in self.ranks for micro_batch in rank for i in micro_batch))

    def plain(self, rank: int) -> tuple[MicroBatch, ...]:
        """Returns a rank's micro-batches with samples of kind None."""
        others = sum(kind is not None for kind in self.kinds)
        return self.ranks[rank][: len(self.ranks[rank]) - others]

    def numbered(self, number: int) -> tuple[MicroBatch, ...]:
        """Returns micro-batch `number` of each rank."""
        return tuple(rank[number] for rank in self.ranks)

    def others(self) -> tuple[int, ...]:
        """Returns the numbers of the micro-batches whose kind is not None."""
        return tuple(number for number, kind in enumerate(self.kinds) if kind is not None)

    def denominator(self, per_token: bool) -> float:
        """Returns the divisor of the step's sum: its number of trained tokens, or of samples."""
        return float(self.num_tokens if per_token else self.num_samples)


@dataclass(frozen=True)
class Schedule:
    """The steps of one rollout, and the reason for each dropped sample."""

    steps: tuple[Step, ...]
    dropped: dict[int, str]


@dataclass(frozen=True)
class ScheduleLimits:
    """Limits for dividing a rollout.

    Attributes:
        world_size: data-parallel ranks.
        max_tokens: most tokens of a micro-batch, counting shared tokens once; a longer sample gets a separate
            micro-batch. None: limit samples instead.
        micro_batch_size: samples of a micro-batch if `max_tokens` is None.
        global_batch_size: trajectories of a step, each with all of its samples; None: a single step.
        trim: drop the samples of an incomplete last step, unless it is the only one.
        balance: distribute the work evenly over ranks; otherwise, distribute micro-batches in order.
    """

    world_size: int = 1
    max_tokens: int | None = None
    micro_batch_size: int = 1
    global_batch_size: int | None = None
    trim: bool = False
    balance: bool = False


def build_schedule(
    lengths: Sequence[int],
    trained_tokens: Sequence[int],
    limits: ScheduleLimits,
    companions: Mapping[int, int] | None = None,
    trajectories: Sequence[Hashable] | None = None,
    kinds: Mapping[int, Hashable] | None = None,
    prefixes: Prefixes | None = None,
) -> Schedule:
    """Plans the steps of a rollout.

    Samples without a trained token are dropped first; the others are divided into steps in their order.

    Args:
        lengths: tokens of each sample, prompt and response.
        trained_tokens: tokens of each sample that the loss counts.
        companions: samples that do not count for the size of steps. The value n (from 1) places a sample in the nth
            additional step after that of the samples before it.
        trajectories: trajectory of each sample (None: every sample is one). All samples of a trajectory are in one
            step.
        kinds: kind of each sample, by position (default None). A micro-batch contains one kind.
        prefixes: common prefixes of the samples, which run once. None: prefixes are not shared.

    Raises:
        ValueError: lengths disagree, or a limit is below 1.
    """
    if len(lengths) != len(trained_tokens):
        raise ValueError(f"got {len(lengths)} lengths but {len(trained_tokens)} counts of trained tokens")
    for name in ("world_size", "max_tokens", "micro_batch_size", "global_batch_size"):
        value = getattr(limits, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} must be 1 or more, got {value}")
    dropped = {i: NOTHING_TO_TRAIN for i, count in enumerate(trained_tokens) if count == 0}
    kept = [i for i in range(len(lengths)) if i not in dropped]
    named = range(len(lengths)) if trajectories is None else trajectories
    parts = _cut(kept, limits.global_batch_size, companions or {}, named)
    left_over = len({named[i] for i in parts[-1][0]}) if parts else 0
    if limits.trim and len(parts) > 1 and left_over < (limits.global_batch_size or 0):
        dropped |= {i: SURPLUS for samples in parts.pop().values() for i in samples}
    filled = [part[number] for part in parts for number in sorted(part)]
    steps = (_step(samples, lengths, trained_tokens, limits, kinds or {}, prefixes) for samples in filled)
    return Schedule(tuple(steps), dropped)


def _cut(
    kept: Sequence[int], size: int | None, companions: Mapping[int, int], trajectories: Sequence[Hashable]
) -> list[dict[int, list[int]]]:
    """Splits samples into parts of `size` trajectories (None: one part).

    Each part has its samples under key 0, and companions under the other keys.
    """
    parts: list[dict[int, list[int]]] = []
    part_of: dict[Hashable, int] = {}
    in_part = 0
    for i in kept:
        number = companions.get(i, 0)
        is_new = number == 0 and trajectories[i] not in part_of
        if not parts or (is_new and in_part == size):
            parts.append(defaultdict(list))
            in_part = 0
        if is_new:
            part_of[trajectories[i]] = len(parts) - 1
            in_part += 1
        parts[part_of[trajectories[i]] if number == 0 else -1][number].append(i)
    return parts


def _step(
    samples: list[int],
    lengths: Sequence[int],
    trained: Sequence[int],
    limits: ScheduleLimits,
    kind_of: Mapping[int, Hashable],
    prefixes: Prefixes | None,
) -> Step:
    """Divides each kind separately, so that micro-batches with equal numbers have the same kind on all ranks."""
    by_kind: dict[Hashable, list[int]] = {None: []}
    for i in samples:
        by_kind.setdefault(kind_of.get(i), []).append(i)
    parts = {kind: _over_ranks(own, lengths, limits, prefixes) for kind, own in by_kind.items() if own}
    ranks = tuple(
        tuple(tuple(sorted(b)) for dealt in parts.values() for b in dealt[rank])
        for rank in range(limits.world_size)
    )
    return Step(
        ranks,
        num_samples=len(samples),
        num_tokens=sum(trained[i] for i in samples),
        kinds=tuple(kind for kind, dealt in parts.items() for _ in dealt[0]),
    )


def _over_ranks(
    samples: list[int], lengths: Sequence[int], limits: ScheduleLimits, prefixes: Prefixes | None
) -> list[list[list[int]]]:
    def load(part: list[int]) -> int:
        return prefixes.size(part).load if alike and prefixes else sum(lengths[i] for i in part)

    whole = limits.max_tokens
    parts = [[i] for i in samples] if prefixes is None or whole is None else prefixes.parts(samples, whole)
    alike = len(parts) < len(samples)
    bins = _fixed_bins(samples, limits) if whole is None else _token_bins(parts, load, whole)
    bins = _fill_ranks(bins, load, limits.world_size)
    return (
        _balanced(bins, load, limits.world_size) if limits.balance else _round_robin(bins, limits.world_size)
    )


def _fixed_bins(samples: list[int], limits: ScheduleLimits) -> list[list[int]]:
    size = limits.micro_batch_size
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def _token_bins(parts: list[list[int]], load: Load, capacity: int) -> list[list[int]]:
    """First-fit bin packing, longest part first. Only a bin with a single part may exceed the capacity."""
    bins: list[list[int]] = []
    loads: list[int] = []
    tokens = [load(part) for part in parts]
    for number in sorted(range(len(parts)), key=lambda number: -tokens[number]):
        for b, of_bin in enumerate(loads):
            if of_bin + tokens[number] <= capacity:
                bins[b] += parts[number]
                loads[b] += tokens[number]
                break
        else:
            bins.append(list(parts[number]))
            loads.append(tokens[number])
    return bins


def _fill_ranks(bins: list[list[int]], load: Load, world_size: int) -> list[list[int]]:
    """Splits the heaviest bins, then adds empty ones, until every rank has equally many."""
    bins = list(bins)
    while len(bins) % world_size:
        splittable = [b for b in bins if len(b) > 1]
        if not splittable:
            bins.append([])
            continue
        heaviest = max(splittable, key=load)
        bins.remove(heaviest)
        bins += _halves(heaviest, load)
    return bins


def _halves(samples: list[int], load: Load) -> list[list[int]]:
    halves: list[list[int]] = [[], []]
    for i in sorted(samples, key=lambda i: -load([i])):
        min(halves, key=load).append(i)
    return halves


def _round_robin(bins: list[list[int]], world_size: int) -> list[list[list[int]]]:
    return [bins[rank::world_size] for rank in range(world_size)]


def _balanced(bins: list[list[int]], load: Load, world_size: int) -> list[list[list[int]]]:
    """Assigns each bin, heaviest first, to the rank with the least work that has room."""
    room = len(bins) // world_size
    ranks: list[list[list[int]]] = [[] for _ in range(world_size)]
    work = [0] * world_size
    for b in sorted(bins, key=lambda b: -load(b)):
        rank = min((r for r in range(world_size) if len(ranks[r]) < room), key=lambda r: work[r])
        ranks[rank].append(b)
        work[rank] += load(b)
    return ranks
