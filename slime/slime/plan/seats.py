"""Assigns engines and training GPUs to machines, both for a start and for its dry run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from claw_base.settings.declare import flag
from slime.errors import ClusterError
from slime.plan.gpu_split import GpuSplit

SMALLER = "make a part smaller (ACTOR_GPUS, ROLLOUT_GPUS, PRM_GPUS), or an engine (TP)"


@dataclass(frozen=True, kw_only=True)
class Machines:
    """The identical machines of a run, as given by a launch script."""

    num_gpus: int = flag(0, "total number of GPUs")
    machines: int = flag(1, "number of machines, with equal numbers of GPUs")
    machine_gpus: int = flag(0, "GPUs per machine (default: equal numbers)")

    def seats(self, split: GpuSplit) -> Seats | None:
        """Returns the place of every part; None for a run without GPUs. Raises ClusterError as `seats_of`."""
        if split.gpus == 0:
            return None
        machines = equal_machines(self.num_gpus or split.gpus, self.machines, self.machine_gpus)
        try:
            return seats_of(split, machines)
        except ClusterError as error:
            setting = f" (GPUS_OF_NODE={self.machine_gpus})" if self.machine_gpus else ""
            raise ClusterError(f"{error}{setting}") from None


@dataclass(frozen=True)
class Machine:
    """A machine of the run, by its name in messages, with its GPUs."""

    name: str
    gpus: int


@dataclass(frozen=True)
class Seats:
    """The assignment; machines are indices of the list given to `seats_of`.

    Attributes:
        engines: for each part with engines, the machine of each engine, in order.
        trainers: GPUs that train, by machine.
    """

    engines: dict[str, tuple[int, ...]]
    trainers: tuple[int, ...]

    def lines(self, split: GpuSplit) -> list[str]:
        """Returns the parts of each machine as text: `trainer 4, policy 2 x 2 GPUs`."""
        names = {"rollout": "policy", "prm": "judge"}
        each = {part.name: part.each for part in split.parts}
        lines = []
        for machine, trainers in enumerate(self.trainers):
            parts = [f"trainer {trainers}"] if trainers else []
            for name, places in self.engines.items():
                if count := places.count(machine):
                    mark = " (shared)" if split.shared and name == "rollout" else ""
                    parts.append(f"{names.get(name, name)} {count} x {each[name]} GPUs{mark}")
            lines.append(", ".join(parts) or "unused")
        return lines


def equal_machines(gpus: int, machines: int, each: int = 0) -> list[Machine]:
    """Returns the machines of a plan: `machines` with `each` GPUs, 0 for an equal share of all, rounded up."""
    share = each or -(-gpus // max(machines, 1))
    return [Machine(f"machine {number}", share) for number in range(max(machines, 1))]


def seats_of(split: GpuSplit, machines: Sequence[Machine]) -> Seats:
    """Assigns every engine to one machine: first to the driver's, `machines[0]`, then to as few others as possible.
    Trainers get the other GPUs.

    Raises:
        ClusterError: too few GPUs, or no machine has room for an engine.
    """
    split.check(sum(machine.gpus for machine in machines))
    free = [machine.gpus for machine in machines]
    engines = _own_gpus(split, free, machines)
    trainers = _trainers(split, free)
    rollout = next((part for part in split.parts if part.name == "rollout"), None)
    if split.shared and rollout is not None and rollout.on_gpu:
        engines["rollout"] = seats_on_trainers(trainers, split.shared, rollout.each, machines)
    return Seats({name: tuple(places) for name, places in engines.items()}, tuple(trainers))


def _own_gpus(split: GpuSplit, free: list[int], machines: Sequence[Machine]) -> dict[str, Sequence[int]]:
    """Assigns the engines that share no GPUs with trainers, largest first; takes their GPUs from `free`."""
    seats: dict[str, Sequence[int]] = {}
    has_engines: set[int] = set()
    for part in sorted(split.engine_parts, key=lambda part: -part.each):
        own: list[int] = []
        for _ in range(part.count // part.each):
            places = [place for place, left in enumerate(free) if left >= part.each]
            if not places:
                raise ClusterError(
                    f"the {part.each} GPUs of an engine ({part.name}) must be on one machine, but the free GPUs are "
                    f"{_listed(free, machines)}: {SMALLER}"
                )
            place = min(places, key=lambda one: (one != 0, one not in has_engines, free[one], one))
            has_engines.add(place)
            free[place] -= part.each
            own.append(place)
        seats[part.name] = own
    return seats


def _trainers(split: GpuSplit, free: list[int]) -> list[int]:
    """Returns the number of training GPUs on each machine. The driver's comes last, or first if engines share GPUs
    with trainers."""
    missing = sum(part.count for part in split.parts if part.on_gpu and part.name == "actor")
    counts = [0] * len(free)
    for place in sorted(
        range(len(free)), key=lambda one: ((one != 0) == bool(split.shared), -free[one], one)
    ):
        counts[place] = min(missing, free[place])
        missing -= counts[place]
    return counts


def seats_on_trainers(
    trainers: Sequence[int], gpus: int, each: int, machines: Sequence[Machine]
) -> tuple[int, ...]:
    """Returns the machine of each engine that shares its GPUs with trainers.

    Args:
        trainers: GPUs that train, by machine.
        gpus: of all engines together.
        each: GPUs of an engine.

    Raises:
        ClusterError: the GPUs that remain on a machine do not divide into whole engines.
    """
    places = [place for place, count in enumerate(trainers) for _ in range(count // each)]
    if len(places) < gpus // each:
        raise ClusterError(
            f"--colocate: {gpus // each} engines of {each} GPUs do not fit on the GPUs of the trainers "
            f"({_listed(trainers, machines)}): make ROLLOUT_GPUS or TP smaller"
        )
    return tuple(places[: gpus // each])


def _listed(counts: Sequence[int], machines: Sequence[Machine]) -> str:
    return ", ".join(f"{machine.name}: {count}" for machine, count in zip(machines, counts, strict=True))
