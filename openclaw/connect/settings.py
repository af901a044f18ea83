"""Flags and environment variables of `python -m openclaw.connect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from claw_base.settings.declare import check, flag
from openclaw.clients.registry import CLIENTS
from openclaw.common.address import ServerAddress
from openclaw.connect.entries import DEFAULT_PROVIDER

WRITTEN = {client.name: client.own_file for client in CLIENTS if client.own_file is not None}
"""Clients whose settings file is written, in addition to OpenClaw."""
PRINTED = {client.name: client.settings for client in CLIENTS if client.settings is not None}
"""Clients whose settings are only printed, to be copied."""


@dataclass(frozen=True, kw_only=True)
class ConnectSettings(ServerAddress):
    """Settings: the client to connect, and the server. Raises ConfigError."""

    api_key: str | None = flag(
        None,
        "Client key of the server, written into the client's settings (may be one of OPENCLAW_API_KEYS)",
        env=("SGLANG_API_KEY",),
    )
    openclaw_config: str | None = flag(
        None,
        "OpenClaw's settings file, default openclaw.json in its state folder",
        env=("OPENCLAW_CONFIG_PATH",),
        unit="path",
    )
    openclaw_state: str | None = flag(
        None, "OpenClaw's state folder, default ~/.openclaw", env=("OPENCLAW_STATE_DIR",), unit="path"
    )
    openclaw_home: str = flag("~", "Home folder of OpenClaw, default ~", env=("OPENCLAW_HOME",), unit="path")
    profile: str | None = flag(
        None,
        "OpenClaw's profile, as in openclaw --profile NAME; its state folder is ~/.openclaw-NAME",
        env=("OPENCLAW_PROFILE",),
    )
    provider: str = flag(DEFAULT_PROVIDER, "Name of the provider entry, default openclaw-rl")
    max_tokens: int = flag(
        8192, "Longest answer that the client requests, default 8192", unit="tokens", least=1
    )
    keep_model: bool = flag(False, "Do not make this model the client's default")
    no_extension: bool = flag(False, "Do not add the plug-in with session and turn type headers")
    replace: bool = flag(False, "Overwrite a provider of this name that has another URL")
    remove: bool = flag(False, "Undo the changes of an earlier run")
    print_only: bool = flag(False, "Print the settings instead of writing them")
    client: str = flag(
        "openclaw",
        f"Client to connect, same as CLIENT; settings of {', '.join(PRINTED)} are only printed",
        choices=("openclaw", *WRITTEN, *PRINTED),
    )

    def __post_init__(self) -> None:
        check(self)

    @property
    def config_file(self) -> Path:
        """Returns the path of openclaw.json."""
        if self.openclaw_config:
            return Path(self.openclaw_config).expanduser()
        if self.openclaw_state:
            return Path(self.openclaw_state).expanduser() / "openclaw.json"
        suffix = f"-{self.profile}" if self.profile and self.profile != "default" else ""
        return Path(self.openclaw_home).expanduser() / f".openclaw{suffix}" / "openclaw.json"

    @property
    def base_url(self) -> str:
        """Returns the address of the API, with /v1."""
        return self.address().rstrip("/").removesuffix("/v1") + "/v1"
