"""Writers of metrics: a JSONL file, TensorBoard, Weights & Biases, trackio. Imports no torch."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from claw_base.files import write_text
from slime.errors import ConfigError
from slime.tracking.pending_metrics import row

if TYPE_CHECKING:
    from slime.flags import Arguments

WANDB_RUN = "wandb_run_id"


class Sink(Protocol):
    """Writes the metrics of one step."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None: ...
    def close(self) -> None: ...


class JsonlSink:
    """Appends one JSON object per call: `{"step", "time", NAME: value, ...}`. Values that are not finite become
    null."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file = path.open("a", encoding="utf-8")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.file.write(row(step, metrics))
        self.file.flush()

    def close(self) -> None:
        self.file.close()


class TensorBoardSink:
    """Writes event files to a folder; each start of the driver adds one."""

    def __init__(self, folder: str) -> None:
        from tensorboard.summary import Writer

        self.writer = Writer(folder)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self.writer.add_scalar(name, float(value), step)
        self.writer.flush()

    def close(self) -> None:
        self.writer.close()


class WandbSink:
    """Logs to one W&B run for all drivers of a run folder, which stores the run's id.

    Raises:
        ConfigError: wandb is not installed, or fails to start.
    """

    def __init__(self, args: Arguments) -> None:
        try:
            wandb = importlib.import_module("wandb")
        except ImportError as error:
            raise ConfigError("--use-wandb needs the package wandb: pip install wandb") from error
        known = Path(args.run_dir) / WANDB_RUN
        run_id = args.wandb_run_id or (known.read_text().strip() if known.is_file() else None)
        try:
            self.run = wandb.init(
                project=args.wandb_project,
                entity=args.wandb_team,
                group=args.wandb_group,
                mode=args.wandb_mode,
                dir=args.wandb_dir or args.run_dir,
                id=run_id,
                resume="allow",
                config=plain(vars(args)),
            )
        except (
            Exception
        ) as error:  # wandb's errors have no common base class, and all mean that it cannot log
            raise ConfigError(f"--use-wandb: W&B does not start: {error}") from error
        write_text(known, str(self.run.id))
        for prefix in ("train", "rollout", "perf", "eval", "weights", "passrate", "multi_turn"):
            self.run.define_metric(f"{prefix}/*", step_metric=f"{prefix}/step")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        steps = {f"{name.split('/')[0]}/step": step for name in metrics if "/" in name}
        self.run.log({**metrics, **steps})

    def close(self) -> None:
        self.run.finish()


class TrackioSink:
    """Logs to one trackio run for all drivers of a run folder, named after the folder. All data stay on this machine:
    `trackio show`.

    Raises:
        ConfigError: trackio is not installed, or fails to start.
    """

    def __init__(self, args: Arguments) -> None:
        try:
            self.trackio = importlib.import_module("trackio")
        except ImportError as error:
            raise ConfigError("--use-trackio needs the package trackio: pip install trackio") from error
        try:
            self.trackio.init(
                project=args.trackio_project or "slime",
                name=Path(args.run_dir).resolve().name,
                resume="allow",
                config=plain(vars(args)),
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        except (
            Exception
        ) as error:  # trackio's errors have no common base class, and all mean that it cannot log
            raise ConfigError(f"--use-trackio: trackio does not start: {error}") from error

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self.trackio.log(dict(metrics), step=step)

    def close(self) -> None:
        self.trackio.finish()


def plain(values: Mapping[str, object]) -> dict[str, Any]:
    """Returns the arguments that are plain data, without secrets."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, str | int | float | bool | None) and not name.endswith(("_key", "_token"))
    }
