"""Fireworks AI as a `slime.rented.service.Service`, through its training SDK.

Variables, set by `run_openclaw_fireworks.py` once both are rented: FIREWORKS_TRAINER_JOB, FIREWORKS_DEPLOYMENT. Also
FIREWORKS_API_KEY (needed).
"""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from openclaw_fireworks.account import check_sdk, managers, read_key, refusals
from openclaw_fireworks.renting import current_snapshot
from openclaw_fireworks.sampler import BaseSampler, DeploymentSampler
from slime.errors import ConfigError
from slime.rented.sdk import ShapedTrained, failures_translated
from slime.rented.service import Sampler, ServiceAway, ServiceRefuses, ServiceSettings, Trained

LOAD_SECONDS, LOOK_SECONDS = 600, 2
NO_WAY_BACK = (
    "deployment {name} holds {snapshot} and cannot go back to the base model: give DEPLOYMENT_ID another name"
)


class FireworksService:
    """One trainer and one deployment, which loads weights while it serves.

    Raises:
        ConfigError: no SDK or an untested one, no key, or nothing rented.
    """

    exclusive = True

    def __init__(self, settings: ServiceSettings) -> None:
        check_sdk()
        self.settings, self.key = settings, read_key()
        self.job = os.environ.get("FIREWORKS_TRAINER_JOB", "")
        self.deployment = os.environ.get("FIREWORKS_DEPLOYMENT", "")
        if not (self.job and self.deployment):
            raise ConfigError("nothing is rented: start with openclaw-fireworks/run_openclaw_fireworks.py")
        self.trainers, self.deployments = managers(settings.url)

    def check(self) -> None:
        with failures_translated():
            deployment = self.deployments.get(self.deployment)
        if deployment is None:
            raise ConfigError(f"Fireworks has no deployment {self.deployment}")

    def sampler(self, address: str | None) -> Sampler:
        with failures_translated():
            model = f"accounts/{self.deployments.account_id}/deployments/{self.deployment}"
        asked = DeploymentSampler(self.settings.url, model, self.key)
        return asked if address is not None else BaseSampler(asked, self._base)

    def load(self, address: str | None) -> None:
        with failures_translated():
            now = current_snapshot(self.deployments, self.deployment, self.settings.model)
            if now == address:
                return
            if address is None:
                raise ServiceRefuses(NO_WAY_BACK.format(name=self.deployment, snapshot=now))
            self.deployments.hotload(self.deployment, self.settings.model, address)
            done = self.deployments.wait_for_hotload(
                self.deployment, self.settings.model, address, LOAD_SECONDS, LOOK_SECONDS
            )
        if not done:
            reason = (
                (self.deployments.last_hotload_error_message or "it took too long").strip().splitlines()[0]
            )
            raise ServiceAway(f"deployment {self.deployment} did not load {address}: {reason}")

    def new(self) -> Trained:
        with refusals(f"Fireworks trains no adapter of rank {self.settings.rank} of {self.settings.model}"):
            return FireworksTrained(self._adapter())

    def resume(self, address: str) -> Trained:
        with failures_translated():
            client = self._adapter()
            client.load_state_with_optimizer(address).result()
            return FireworksTrained(client)

    def _adapter(self) -> Any:
        settings = self.settings
        return self._connected().create_lora_training_client(
            settings.model, rank=settings.rank, seed=settings.seed
        )

    def _base(self) -> ShapedTrained:
        """Returns the base model on the trainer, without its adapter."""
        from fireworks.training.sdk import types

        with failures_translated():
            client = self._connected().create_base_training_client(self.settings.model)
            return ShapedTrained(client, types, "sum")

    def _connected(self) -> Any:
        """Returns a client of the trainer; wakes a sleeping trainer. It sends no telemetry unless the user enables
        it."""
        os.environ.setdefault("TINKER_TELEMETRY", "0")
        from fireworks.training.sdk import FiretitanServiceClient

        endpoint = self.trainers.reconnect_and_wait(self.job)
        return FiretitanServiceClient(base_url=endpoint.base_url, api_key=self.key)


class FireworksTrained(ShapedTrained):
    """One LoRA adapter at the service. The service accepts only domain-name labels as names; `resume` and `load` take
    the returned name."""

    def __init__(self, client: Any) -> None:
        from fireworks.training.sdk import types

        super().__init__(client, types, "sum")
        self._saving = ThreadPoolExecutor(1, thread_name_prefix="fireworks-save")

    def save_sampler(self, name: str) -> Future[str]:
        return self._saving.submit(self._save_sampler, name)

    def _save_sampler(self, name: str) -> str:
        with failures_translated():
            saved = self.client.save_weights_for_sampler_ext(label(name), checkpoint_type="base")
            return str(saved.snapshot_name)

    def save_state(self, name: str) -> Any:
        return super().save_state(label(name))


def label(name: str) -> str:
    return name.replace("_", "-").lower()
