"""Flags and variables of `run.py`, with the names that OpenClaw-RL's Tinker folder uses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.declare import flag
from openclaw_tinker.service import check_sdk, read_key
from rented_run.flags import RentedFlags
from rented_run.main import Cloud
from rented_run.words import driver_words

RAY_PORT = ":8265"
"""Port of Ray's dashboard: TINKER_ENDPOINT may be the address for `ray job submit`, not the service."""
SERVICE = "openclaw_tinker.service:TinkerService"


@dataclass
class TinkerFlags(RentedFlags):
    """Flags whose defaults differ for Tinker."""

    model_name: str = flag(
        "Qwen/Qwen3-4B-Instruct-2507", "base model, by its name at the service", env=("MODEL_NAME",)
    )
    served_model_name: str = flag("qwen3-4b-lora", "name of the model in the API", env=("SERVED_MODEL_NAME",))
    resume_from_ckpt: str = flag(
        "",
        "tinker:// address of a saved state, or folder of a checkpoint, to start from",
        env=("RESUME_FROM_CKPT",),
    )
    prices: str = flag("", "JSON file of prices, see README.md", env=("TINKER_PRICES", "PRICES"))


def base_url(env: Mapping[str, str]) -> str:
    """Returns the service's address: TINKER_BASE_URL, else TINKER_ENDPOINT unless it is Ray's; "" is Tinker's own."""
    endpoint = env.get("TINKER_ENDPOINT", "")
    is_ray = endpoint.startswith("ray:") or endpoint.rstrip("/").endswith(RAY_PORT) or endpoint == "auto"
    return env.get("TINKER_BASE_URL", "") or ("" if is_ray else endpoint)


def words_for(flags: TinkerFlags, folder: Path, env: Mapping[str, str]) -> list[str]:
    """Returns the driver's command line. Raises ConfigError for flags that cannot work."""
    return driver_words(flags, SERVICE, base_url(env), folder, flags.model_name)


TINKER = Cloud(
    "tinker", "Serve at home, sample and train at Tinker.", TinkerFlags, words_for, check_sdk, read_key
)
