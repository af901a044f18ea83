"""All ranks of the trainer behind one object."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import ray
from ray.exceptions import RayActorError

from claw_base.run_folder import records
from slime.errors import TrainError
from slime.processes import control
from slime.processes.known_failures import with_advice
from slime.ray.limits import load_limit, save_limit
from slime.ray.meeting import Meeting, arrange
from slime.ray.placement import Placement
from slime.ray.train_actor import TrainActor, TrainerState, record_name
from slime.ray.waiting import TaskFailed, WaitTimeout, gather
from slime.utils.memory_kills import MemoryKills

if TYPE_CHECKING:
    from slime.flags import Arguments
    from slime.types import Sample

EXIT_TIMEOUT = 2.0  # seconds until the exit of a process is visible after its peers have noticed it


class TrainerDied(TrainError):
    """A rank exited, failed or hangs. The group cannot be used any more; a new one resumes from the checkpoint."""


class TrainGroup:
    """Starts one actor a rank in the bundles of the placement's actor part. Every call is sent to all ranks.

    Every call may raise TrainerDied: a rank exited, failed in a way that leaves the others waiting, or exceeded the
    time limit of this call's flag.
    """

    def __init__(self, args: Arguments, placement: Placement) -> None:
        self.args, self.placement = args, placement
        self.save_limit, self.load_limit = save_limit(args), load_limit(args)
        sites = placement.sites["actor"]
        self.ranks = [
            TrainActor.options(  # type: ignore[attr-defined]
                num_gpus=0 if site.gpu is None else 1,
                scheduling_strategy=placement.strategy_of(site.bundle),
            ).remote(args, rank, len(sites))
            for rank, site in enumerate(sites)
        ]
        self.meeting: Meeting | None = None
        self.kills = MemoryKills()
        self.lives = [rank.live.remote() for rank in self.ranks]

    def load(self) -> TrainerState:
        self.meeting = arrange(Path(self.args.run_dir), len(self.ranks), self.placement.several_nodes)
        state: TrainerState = self.call("load", "loading the trainer's model", self.load_limit, self.meeting)
        return state

    def train(self, rollout_id: int, samples: object) -> dict[str, float]:
        """Runs one training step. `samples` is the batch or a reference to it; returns rank 0's metrics."""
        action, limit = f"training on rollout {rollout_id}", self.args.train_timeout
        metrics: dict[str, float] = self.call("train", action, limit, rollout_id, samples)
        return metrics

    def export_weights(self, folder: Path, version: int, whole: bool) -> str:
        """Writes the weights as a Hugging Face folder, or only their adapter, and returns the checksum."""
        action, limit = f"the export of version {version}", self.save_limit
        checksum: str = self.call("export_weights", action, limit, str(folder), version, whole)
        return checksum

    def keeps(self, folder: str) -> bool:
        """Returns whether the weights of a version are still available at the address recorded in its folder."""
        return bool(self.call("keeps", f"checking that {folder} is available", self.load_limit, folder))

    def share_weights(self, slots: Path, version: int) -> tuple[str, str]:
        """Copies the weights to shared memory; returns checksum and slot, or "" and the reason if there is no
        room."""
        action, limit = f"the export of version {version}", self.save_limit
        slot: tuple[str, str] = self.call("share_weights", action, limit, str(slots), version)
        return slot

    def save(
        self,
        rollout_id: int,
        version: int,
        parent: int | None,
        model_folder: str | None,
        wait: bool,
        hold: bool = False,
    ) -> Path:
        """Writes a checkpoint; `hold`: it is complete but becomes valid only after `checkpoints.activate_checkpoint`."""
        action, limit = f"the checkpoint after rollout {rollout_id}", self.save_limit
        return Path(self.call("save", action, limit, rollout_id, version, parent, model_folder, wait, hold))

    def finish_save(self) -> None:
        """Returns once no checkpoint is being written."""
        self.call("finish_save", "finishing a checkpoint", self.save_limit)

    def note_state(self) -> None:
        """Makes every rank copy its current state to memory; `keep_state` may use the copy."""
        self.call("note_state", "copying the trainer's state", self.save_limit)

    def keep_state(self) -> None:
        """Makes the noted state, or else the current one, the state that `go_back` restores."""
        self.call("keep_state", "copying the trainer's state", self.save_limit)

    def go_back(self) -> None:
        """Returns every rank to the state of `keep_state`."""
        self.call("go_back", "restoring the trainer's state", self.load_limit)

    def shrink(self, share: float) -> None:
        """Moves every rank's weights to `share` of the way from the kept state to the current one."""
        self.call("shrink", "shrinking the step", self.load_limit, share)

    def return_to(self, checkpoint: Path) -> None:
        """Loads an older checkpoint on every rank, in place."""
        action, limit = f"loading {checkpoint.name}", self.load_limit
        self.call("return_to", action, limit, str(checkpoint))

    def load_adapter(self, save: Path, checkpoint: Path | None) -> None:
        """Makes every rank train another adapter from now on, with its own optimizer: from a checkpoint, or a new one
        (None). Its checkpoints are written to `save`."""
        action, limit = f"loading the adapter in {save}", self.load_limit
        self.call("load_adapter", action, limit, str(save), None if checkpoint is None else str(checkpoint))

    def measure_files(self, candidate: str, live: str) -> dict[str, float]:
        """Compares two folders of weights; raises CandidateRejected."""
        answer = [self.ranks[0].measure_files.remote(candidate, live)]
        measurements: dict[str, float] = self.collect(
            answer, f"measuring the weights in {candidate}", self.save_limit
        )[0]
        return measurements

    def log_probs(self, samples: list[Sample]) -> list[list[float]]:
        """Returns the log-probs of every response token under the current weights, at the sampling temperature."""
        action, limit = "computing log-probs of stored answers", self.args.train_timeout
        log_probs: list[list[float]] = self.call("log_probs", action, limit, samples)
        return log_probs

    def scale_learning_rate(self, scale: float) -> None:
        """Multiplies the learning rate of the schedule by `scale` in all later steps."""
        self.call("scale_learning_rate", "changing the learning rate", self.save_limit, scale)

    def sleep(self) -> None:
        """Moves everything on the GPUs to CPU memory."""
        self.call("sleep", "moving the trainer to CPU memory", self.save_limit)

    def wake_up(self) -> None:
        self.call("wake_up", "moving the trainer to its GPUs", self.save_limit)

    def call(self, method: str, action: str, limit: float, *args: object) -> Any:
        """Runs a method on all ranks; returns rank 0's result."""
        return self.collect([getattr(rank, method).remote(*args) for rank in self.ranks], action, limit)[0]

    def collect(self, answers: list[Any], action: str, limit: float = 0.0) -> list[Any]:
        try:
            return gather(answers, action, limit)
        except RayActorError as error:
            reason = self.ended() or str(error).splitlines()[0]
            memory_kill = f"; {killed}" if (killed := self.kills.news()) else ""
            raise TrainerDied(with_advice(f"{action} failed: {reason}{memory_kill}", str(error))) from error
        except TaskFailed as error:  # often only a consequence of another rank's exit
            raise TrainerDied(self.exit_message(action) or str(error)) from error
        except WaitTimeout as error:
            ranks = ", ".join(self.describe(rank) for rank in error.missing)
            raise TrainerDied(f"{error}: {ranks}") from error

    def exit_message(self, action: str) -> str:
        return f"{action} failed: {ended}" if (ended := self.ended()) else ""

    def ended(self) -> str:
        """Returns `rank 1 ended` for all ranks that exited; empty if none does within `EXIT_TIMEOUT`."""
        ready = ray.wait(self.lives, num_returns=1, timeout=EXIT_TIMEOUT)[0]
        ranks = [str(rank) for rank, life in enumerate(self.lives) if life in ready]
        lost = self.placement.lost()
        return f"rank {', '.join(ranks)} ended" + (f" ({lost} is lost)" if lost else "") if ranks else ""

    def describe(self, rank: int) -> str:
        """Returns `rank 1 (pid 77, stopped)`, as far as it can be read from this machine."""
        record = records.read_record(Path(self.args.run_dir), record_name(rank))
        if record is None or not record.alive():
            return f"rank {rank}"
        with contextlib.suppress(psutil.NoSuchProcess):
            return f"rank {rank} (pid {record.pid}, {psutil.Process(record.pid).status()})"
        return f"rank {rank} (pid {record.pid})"

    def check(self) -> None:
        """Raises TrainerDied if a rank's process has exited since `load`."""
        self.collect(ray.wait(self.lives, num_returns=len(self.lives), timeout=0)[0], "the trainer")

    def kill(self) -> None:
        """Kills all ranks, including unresponsive ones."""
        for number, rank in enumerate(self.ranks):
            ray.kill(rank)
            record = records.read_record(Path(self.args.run_dir), record_name(number))
            if record is not None:
                control.terminate(record, grace=0.0)
        if self.meeting is not None:
            self.meeting.end()
