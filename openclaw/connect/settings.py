"""Flags and variables of `python -m openclaw.connect`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from openclaw import options
from openclaw.options import option

CLIENTS = ("openclaw", "openai", "litellm", "continue", "open-webui")


@dataclass(frozen=True, kw_only=True)
class ConnectSettings:
    """What to connect with what. Raises ConfigError."""

    url: str = option(
        str, "http://127.0.0.1:30000/v1", "The server's address, default http://127.0.0.1:30000/v1"
    )
    api_key: str | None = option(
        str, None, "The server's client key; it is written into openclaw.json", ("SGLANG_API_KEY",)
    )
    openclaw_config: str | None = option(
        str,
        None,
        "OpenClaw's settings, default openclaw.json in OpenClaw's state folder",
        ("OPENCLAW_CONFIG_PATH",),
        "path",
    )
    openclaw_state: str = option(
        str,
        str(Path("~") / ".openclaw"),
        "OpenClaw's state folder, default ~/.openclaw",
        ("OPENCLAW_STATE_DIR",),
        "path",
    )
    provider: str = option(str, "openclaw-rl", "Name of the provider entry, default openclaw-rl")
    max_tokens: int = option(
        int, 8192, "Longest answer that OpenClaw asks for, default 8192", unit="tokens", least=1
    )
    keep_model: bool = option(bool, False, "Do not make this model OpenClaw's default")
    no_extension: bool = option(bool, False, "Do not add the plug-in with session and turn type headers")
    replace: bool = option(bool, False, "Replace a provider of this name that points elsewhere")
    remove: bool = option(bool, False, "Undo what an earlier run wrote")
    print_only: bool = option(bool, False, "Print the settings, write nothing")
    client: str = option(
        str, "openclaw", "Whose settings: others than openclaw are only printed", choices=CLIENTS
    )

    def __post_init__(self) -> None:
        options.check(self)

    @property
    def config_file(self) -> Path:
        """openclaw.json."""
        return Path(self.openclaw_config or Path(self.openclaw_state) / "openclaw.json").expanduser()

    @property
    def base_url(self) -> str:
        """The address with /v1."""
        return self.url.rstrip("/").removesuffix("/v1") + "/v1"
