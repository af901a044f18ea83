"""What connecting changes in openclaw.json, as pure functions on its content.

The names are those of OpenClaw 2026.9: models.providers, agents.defaults.model.primary, plugins.load.paths,
plugins.entries, plugins.allow. Nothing else is touched.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from openclaw.errors import ConfigError

PLUGIN = "rl-training-headers"

Config = dict[str, Any]


@dataclass(frozen=True)
class Model:
    """The served model. context and max_tokens in tokens."""

    id: str
    context: int
    max_tokens: int


def provider_entry(base_url: str, api_key: str | None, model: Model) -> Config:
    """An entry of models.providers; a server without a key is given a placeholder, which OpenClaw asks for."""
    return {
        "baseUrl": base_url,
        "apiKey": api_key or "no-key-needed",
        "api": "openai-completions",
        "models": [
            {
                "id": model.id,
                "name": f"{model.id} (OpenClaw-RL)",
                "reasoning": True,
                "input": ["text"],
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                "contextWindow": model.context,
                "maxTokens": min(model.max_tokens, model.context // 2),
            }
        ],
    }


def connected(
    config: Mapping[str, Any], name: str, entry: Config, default: bool, extension: str | None, replace: bool
) -> tuple[Config, Config]:
    """The new content, and notes of what was there before.

    Args:
        default: make the model OpenClaw's default.
        extension: folder of the plug-in, None to leave plug-ins alone.

    Raises:
        ConfigError: the name is taken by a provider at another address and `replace` is not set, or a part of
            the content is no object.
    """
    new = copy.deepcopy(dict(config))
    notes: Config = {"provider": name}
    providers = _part(new, "models", "providers")
    known = providers.get(name)
    if known is not None and _address(known) != _address(entry) and not replace:
        raise ConfigError(
            f"models.providers.{name} exists and points at {_address(known)}; choose another name with --provider, or "
            "overwrite it with --replace"
        )
    notes["before"] = known
    providers[name] = {**known, **entry} if isinstance(known, dict) else entry
    if default:
        model = _part(new, "agents", "defaults", "model")
        notes["primary"] = model.get("primary")
        model["primary"] = f"{name}/{entry['models'][0]['id']}"
    if extension is not None:
        notes["extension"] = extension
        notes["allowed"] = _add_plugin(new, name, extension)
    return new, notes


def disconnected(config: Mapping[str, Any], notes: Mapping[str, Any]) -> Config:
    """The content without what `connected` added; what was there before is back, what others changed stays."""
    new = copy.deepcopy(dict(config))
    name = notes["provider"]
    providers = _part(new, "models", "providers")
    providers.pop(name, None)
    if notes.get("before") is not None:
        providers[name] = notes["before"]
    if "primary" in notes:
        model = _part(new, "agents", "defaults", "model")
        if str(model.get("primary", "")).startswith(f"{name}/"):
            model.pop("primary")
            if notes["primary"] is not None:
                model["primary"] = notes["primary"]
    if "extension" in notes:
        _remove_plugin(new, notes)
    _tidy(new)
    return new


def _add_plugin(config: Config, provider: str, extension: str) -> bool:
    """Returns whether the plug-in had to be put on a list of allowed ones."""
    paths = _part(config, "plugins", "load").setdefault("paths", [])
    if extension not in paths:
        paths.append(extension)
    entry = _part(config, "plugins", "entries", PLUGIN)
    entry["enabled"] = True
    _part(entry, "hooks")["allowConversationAccess"] = True
    if provider != "openclaw-rl":
        _part(entry, "config")["providerId"] = provider
    allowed = config["plugins"].get("allow")
    if isinstance(allowed, list) and allowed and PLUGIN not in allowed:
        allowed.append(PLUGIN)
        return True
    return False


def _remove_plugin(config: Config, notes: Mapping[str, Any]) -> None:
    plugins = _part(config, "plugins")
    _part(plugins, "entries").pop(PLUGIN, None)
    load = _part(plugins, "load")
    load["paths"] = [path for path in load.get("paths", []) if path != notes["extension"]]
    if not load["paths"]:
        load.pop("paths")
    if notes.get("allowed") and isinstance(plugins.get("allow"), list):
        plugins["allow"] = [one for one in plugins["allow"] if one != PLUGIN]


def _tidy(config: Config) -> None:
    """Removes the empty objects that connecting may have made."""
    for path in (
        ("models", "providers"),
        ("agents", "defaults", "model"),
        ("plugins", "load"),
        ("plugins", "entries"),
    ):
        for depth in range(len(path), 0, -1):
            parent = config
            for key in path[: depth - 1]:
                parent = parent.get(key, {})
            if parent.get(path[depth - 1]) == {}:
                parent.pop(path[depth - 1])


def _part(config: Config, *path: str) -> Config:
    """The object at `path`, made where it is missing. Raises ConfigError where something else is there."""
    here = config
    for depth, key in enumerate(path):
        found = here.setdefault(key, {})
        if key == "model" and isinstance(found, str):  # short form of {"primary": ...}
            found = here[key] = {"primary": found}
        if not isinstance(found, dict):
            raise ConfigError(f"openclaw.json: {'.'.join(path[: depth + 1])} is no object; mend it first")
        here = found
    return here


def _address(entry: Any) -> str:
    url = entry.get("baseUrl", "") if isinstance(entry, dict) else ""
    return str(url).rstrip("/")
