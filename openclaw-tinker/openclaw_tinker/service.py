"""Tinker as a `slime.rented.service.Service`, through its official SDK.

Variables: TINKER_API_KEY (needed), TINKER_BASE_URL (another server), TINKER_LOSS_REDUCTION (mean: for skyrl).
"""

from __future__ import annotations

import os
from typing import Any, cast

from slime.errors import ConfigError, unknown_name
from slime.rented.sdk import (
    REFUSED_KEY,
    Reduction,
    ShapedTrained,
    check_version,
    failures_translated,
    status_in_causes,
)
from slime.rented.service import Sampler, ServiceAway, ServiceRefuses, ServiceSettings, Trained

TESTED = (0, 25)
"""Supported versions of the SDK: 0.25.x. Its calls were tested with these."""
REDUCTIONS = ("sum", "mean")
INSTALL = "pip install 'tinker>=0.25.0,<0.26'"


class TinkerService:
    """The client of one run; connects at the first call.

    Raises:
        ConfigError: no SDK or an untested one, no key, or a variable with an unknown value.
    """

    exclusive = False

    def __init__(self, settings: ServiceSettings) -> None:
        check_sdk()
        self.settings, self.key = settings, read_key()
        self.reduction = os.environ.get("TINKER_LOSS_REDUCTION") or "sum"
        if self.reduction not in REDUCTIONS:
            raise unknown_name("TINKER_LOSS_REDUCTION", self.reduction, REDUCTIONS)
        self._client: Any = None

    @property
    def client(self) -> Any:
        """Returns the SDK's client, created at the first call. It sends no telemetry unless the user enables it."""
        if self._client is None:
            os.environ.setdefault("TINKER_TELEMETRY", "0")
            import tinker

            self._client = tinker.ServiceClient(base_url=self.settings.url or None, api_key=self.key)
        return self._client

    def check(self) -> None:
        try:
            known = self.asked(lambda client: client.get_server_capabilities()).supported_models
        except ServiceAway as error:
            if status_in_causes(error) in REFUSED_KEY:
                raise ConfigError(f"TINKER_API_KEY is refused by {self.place}: {error}") from error
            raise
        names = sorted(str(one.model_name) for one in known)
        if self.settings.model not in names:
            raise ConfigError(
                f"{self.place} has no base model {self.settings.model!r}; it has {', '.join(names)}"
            )

    @property
    def place(self) -> str:
        return self.settings.url or os.environ.get("TINKER_BASE_URL") or "Tinker"

    def sampler(self, address: str | None) -> Sampler:
        from openclaw_tinker.sampler import TinkerSampler

        named = {"base_model": self.settings.model} if address is None else {"model_path": address}
        return TinkerSampler(self.asked(lambda client: client.create_sampling_client(**named)))

    def load(self, address: str | None) -> None:
        """Does nothing: Tinker serves every saved address at any time."""

    def new(self) -> Trained:
        settings = self.settings
        try:
            return self._trained(
                lambda client: client.create_lora_training_client(
                    settings.model, settings.rank, settings.seed
                )
            )
        except ServiceRefuses as error:
            raise ConfigError(
                f"{self.place} trains no adapter of rank {settings.rank} of {settings.model}: {error}"
            ) from error

    def resume(self, address: str) -> Trained:
        return self._trained(lambda client: client.create_training_client_from_state_with_optimizer(address))

    def _trained(self, make: Any) -> Trained:
        from tinker import types

        return ShapedTrained(self.asked(make), types, cast(Reduction, self.reduction))

    def asked(self, ask: Any) -> Any:
        """Returns the result of an SDK call; after a failure the next call connects again. Raises ServiceAway,
        ServiceRefuses."""
        try:
            with failures_translated():
                return ask(self.client)
        except ServiceAway:
            self._client = None
            raise


def check_sdk() -> None:
    """Raises ConfigError if the SDK is missing or of an untested version."""
    check_version("Tinker's SDK", "tinker", TESTED, INSTALL)


def read_key() -> str:
    """Returns the API key. Raises ConfigError if there is none or it is malformed; the message never contains it."""
    key = os.environ.get("TINKER_API_KEY", "")
    if not key:
        raise ConfigError("no key: export TINKER_API_KEY=tml-..., from the console of Tinker")
    if not key.startswith(("tml-", "eyJ")):
        raise ConfigError("TINKER_API_KEY is not a key of Tinker: these begin with tml-")
    return key
