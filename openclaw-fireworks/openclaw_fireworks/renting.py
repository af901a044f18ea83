"""The rented resources of one run: a trainer, and a deployment that loads the trainer's weights while it serves."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from claw_base.files import write_text
from openclaw_fireworks.account import api_url, managers, refusals
from slime.errors import ConfigError

FILE = "fireworks.json"
READY_SECONDS = 1800.0
DRAIN = "SYNC"
"""Requests in progress finish with their old weights before new ones are loaded."""
IN_USE = "deployment {name} is in use by another run ({holder}): set DEPLOYMENT_ID to another name, or RUN_DIR to its run"


@dataclass(frozen=True)
class Rented:
    """The service's names of the trainer job and the deployment."""

    job: str
    deployment: str


def rent(model: str, rank: int, shape: str, deployment: str, folder: Path) -> Rented:
    """Returns the trainer and the deployment of a run once both are ready; reuses those recorded in its folder.

    Raises:
        ConfigError: a wrong key, an unknown model or shape, a rank that the shape lacks, a deployment of another run.
    """
    known = _read(folder)
    with refusals("Fireworks cannot rent what this run needs"):
        trainers, deployments = managers(api_url(os.environ))
        if holder := _other_run(deployments, deployment, model, known):
            raise ConfigError(IN_USE.format(name=deployment, holder=holder))
        profile = trainers.resolve_training_profile(shape)
        endpoint = (
            _new_trainer(trainers, model, rank, profile)
            if known is None
            else trainers.reconnect_and_wait(known.job)
        )
        rented = Rented(endpoint.job_id, deployment)
        write_text(folder / FILE, json.dumps(asdict(rented)))
        _deploy(deployments, model, profile, deployment, endpoint.job_name)
    return rented


def _other_run(deployments: Any, deployment: str, model: str, known: Rented | None) -> str | None:
    """Returns the trainer or the weights of another run that a deployment holds; None: it is free."""
    other = deployments.get(deployment)
    if other is None:
        return None
    owner = other.hot_load_trainer_job
    if known is not None:
        return None if not owner or owner.split("/")[-1] == known.job else str(owner)
    return owner or current_snapshot(deployments, deployment, model)


def current_snapshot(deployments: Any, deployment: str, model: str) -> str | None:
    """Returns the snapshot that a deployment serves; None: the base model."""
    replicas = deployments.hotload_check_status(deployment, model).get("replicas") or [{}]
    identity = replicas[0].get("current_snapshot_identity")
    return str(identity) if identity else None


def _new_trainer(trainers: Any, model: str, rank: int, profile: Any) -> Any:
    from fireworks.training.sdk import TrainerJobConfig

    return trainers.create_and_wait(
        TrainerJobConfig(
            base_model=model,
            lora_rank=rank,
            display_name="openclaw-rl",
            training_shape_ref=profile.training_shape,
        )
    )


def _deploy(deployments: Any, model: str, profile: Any, name: str, job: str) -> None:
    from fireworks.training.sdk import DeploymentConfig

    deployed = deployments.create_or_get(
        DeploymentConfig.from_training_profile(
            deployment_id=name, base_model=model, profile=profile,
            hot_load_trainer_job=job, hot_load_transition_type=DRAIN,
        )
    )  # fmt: skip
    deployments.wait_for_ready(name, timeout_s=READY_SECONDS)
    deployments.reattach_trainer(
        deployed.deployment_id, base_model=model, trainer_job_name=job, timeout_s=READY_SECONDS,
        hot_load_transition_type=DRAIN,
    )  # fmt: skip


def _read(folder: Path) -> Rented | None:
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return Rented(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ConfigError(
            f"{path} is not a valid record of the deployment that this run rents: {error}"
        ) from error
