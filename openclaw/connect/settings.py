"""Flags and variables of `python -m openclaw.connect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openclaw.clients.registry import CLIENTS
from openclaw.common import declare
from openclaw.common.address import ServerAddress
from openclaw.common.declare import option
from openclaw.connect.entries import DEFAULT_PROVIDER

WRITTEN = {client.name: client.own_file for client in CLIENTS if client.own_file is not None}
"""Clients whose settings are written, beside OpenClaw's."""
PRINTED = {client.name: client.settings for client in CLIENTS if client.settings is not None}
"""Clients whose settings are printed, to be copied."""


@dataclass(frozen=True, kw_only=True)
class ConnectSettings(ServerAddress):
    """What to connect with what. Raises ConfigError."""

    api_key: str | None = option(
        str,
        None,
        "A client key of the server (one of OPENCLAW_API_KEYS does too); it is written into the client's settings",
        ("SGLANG_API_KEY",),
    )
    openclaw_config: str | None = option(
        str,
        None,
        "OpenClaw's settings, default openclaw.json in OpenClaw's state folder",
        ("OPENCLAW_CONFIG_PATH",),
        "path",
    )
    openclaw_state: str | None = option(
        str, None, "OpenClaw's state folder, default ~/.openclaw", ("OPENCLAW_STATE_DIR",), "path"
    )
    openclaw_home: str = option(str, "~", "Home folder of OpenClaw, default ~", ("OPENCLAW_HOME",), "path")
    profile: str | None = option(
        str,
        None,
        "OpenClaw's profile, as in openclaw --profile NAME; its state folder is ~/.openclaw-NAME",
        ("OPENCLAW_PROFILE",),
    )
    provider: str = option(str, DEFAULT_PROVIDER, "Name of the provider entry, default openclaw-rl")
    max_tokens: int = option(
        int, 8192, "Longest answer that the client asks for, default 8192", unit="tokens", least=1
    )
    keep_model: bool = option(bool, False, "Do not make this model the client's default")
    no_extension: bool = option(bool, False, "Do not add the plug-in with session and turn type headers")
    replace: bool = option(bool, False, "Replace a provider of this name that points elsewhere")
    remove: bool = option(bool, False, "Undo what an earlier run wrote")
    print_only: bool = option(bool, False, "Print the settings, write nothing")
    client: str = option(
        str,
        "openclaw",
        f"Whose settings, also as the first word; those of {', '.join(PRINTED)} are only printed",
        choices=("openclaw", *WRITTEN, *PRINTED),
    )

    def __post_init__(self) -> None:
        declare.check(self)

    @property
    def config_file(self) -> Path:
        """openclaw.json."""
        if self.openclaw_config:
            return Path(self.openclaw_config).expanduser()
        if self.openclaw_state:
            return Path(self.openclaw_state).expanduser() / "openclaw.json"
        suffix = f"-{self.profile}" if self.profile and self.profile != "default" else ""
        return Path(self.openclaw_home).expanduser() / f".openclaw{suffix}" / "openclaw.json"

    @property
    def base_url(self) -> str:
        """The address with /v1."""
        return self.address().rstrip("/").removesuffix("/v1") + "/v1"
