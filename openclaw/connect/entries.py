"""The changes of openclaw.json, as pure functions of its content.

Only these keys of OpenClaw 2026.9 are changed: models.providers, agents.defaults.model.primary, plugins.load.paths,
plugins.entries, plugins.allow.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from openclaw.clients.client import Model
from openclaw.errors import ConfigError

PLUGIN = "rl-training-headers"
DEFAULT_PROVIDER = "openclaw-rl"
_SUFFIX = "(OpenClaw-RL)"
"""Suffix of the display names of models that connecting adds."""

Config = dict[str, Any]


def provider_entry(base_url: str, api_key: str | None, model: Model) -> Config:
    """Returns an entry of models.providers.

    For a server without a key it has a placeholder, because OpenClaw requires a key.
    """
    return {
        "baseUrl": base_url,
        "apiKey": api_key or "no-key-needed",
        "api": "openai-completions",
        "models": [
            {
                "id": model.id,
                "name": f"{model.id} {_SUFFIX}",
                "reasoning": True,
                "input": ["text"],
                "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
                "contextWindow": model.context,
                "maxTokens": min(model.max_tokens, model.context // 2),
            }
        ],
    }


def connected(
    config: Mapping[str, Any],
    name: str,
    entry: Config,
    default: bool,
    extension: str | None,
    replace: bool,
    earlier: Mapping[str, Any] | None = None,
) -> tuple[Config, Config]:
    """Returns the new content, and notes of the earlier values, with which `disconnected` undoes the change.

    Args:
        default: make the model the default of OpenClaw.
        extension: folder of the plug-in; None leaves plug-ins unchanged.
        earlier: notes of an earlier connection, which this one replaces.

    Raises:
        ConfigError: a provider of this name has another address and `replace` is not set, or a part of the content is
            not an object.
    """
    ours = _is_ours(config, earlier) and (earlier or {})["provider"] == name
    edited = config["models"]["providers"][name] if ours else None
    new = disconnected(config, earlier) if earlier else copy.deepcopy(dict(config))
    notes: Config = {"provider": name, "address": _address(entry)}
    providers = _part(new, "models", "providers")
    known = providers.get(name)
    if known is not None and _address(known) != _address(entry) and not replace:
        raise ConfigError(
            f"models.providers.{name} already exists with the address {_address(known)}: choose another name with "
            "--provider, or overwrite it with --replace"
        )
    notes["before"] = known
    providers[name] = _merged(edited or known, entry)
    if default:
        notes["model_is_text"] = isinstance(_part(new, "agents", "defaults").get("model"), str)
        model = _part(new, "agents", "defaults", "model")
        notes["primary"] = model.get("primary")
        model["primary"] = f"{name}/{entry['models'][0]['id']}"
    if extension is not None:
        notes["extension"] = extension
        notes["plugin"] = copy.deepcopy(_part(new, "plugins", "entries").get(PLUGIN))
        notes["allowed"] = _add_plugin(new, name, extension)
    return new, notes


def disconnected(config: Mapping[str, Any], notes: Mapping[str, Any]) -> Config:
    """Returns the content without the changes of `connected`.

    Earlier values are restored. Later changes by others are kept, such as a provider with a new address.
    """
    new = copy.deepcopy(dict(config))
    name = notes["provider"]
    if _is_ours(config, notes):
        providers = _part(new, "models", "providers")
        providers.pop(name)
        if notes.get("before") is not None:
            providers[name] = notes["before"]
    if "primary" in notes:
        model = _part(new, "agents", "defaults", "model")
        if str(model.get("primary", "")).startswith(f"{name}/"):
            model.pop("primary")
            if notes["primary"] is not None:
                model["primary"] = notes["primary"]
        if notes.get("model_is_text") and list(model) == ["primary"]:
            new["agents"]["defaults"]["model"] = model["primary"]
    if "extension" in notes:
        _remove_plugin(new, notes)
    _tidy(new)
    return new


def remarks(config: Mapping[str, Any], notes: Mapping[str, Any]) -> list[str]:
    """Returns warnings about settings because of which OpenClaw will not use the connection."""
    lines = []
    plugins = config.get("plugins", {})
    if "extension" in notes and (plugins.get("enabled") is False or PLUGIN in (plugins.get("deny") or [])):
        where = (
            "plugins.enabled is false" if plugins.get("enabled") is False else f"plugins.deny names {PLUGIN}"
        )
        lines.append(
            f"{where}, so OpenClaw will not load the plug-in; the server will match sessions by their transcripts"
        )
    agents = config.get("agents", {}).get("list")
    own = [str(one.get("id")) for one in agents or [] if isinstance(one, dict) and one.get("model")]
    if "primary" in notes and own:
        lines.append(f"these agents have their own model in agents.list, which they keep: {', '.join(own)}")
    return lines


def _is_ours(config: Mapping[str, Any], notes: Mapping[str, Any] | None) -> bool:
    """Returns whether the provider of the notes exists and still has the address that connecting wrote."""
    if not notes:
        return False
    known = _part(copy.deepcopy(dict(config)), "models", "providers").get(notes["provider"])
    return known is not None and _address(known) == notes.get("address", _address(known))


def _merged(known: object, entry: Config) -> Config:
    """Returns the entry, with further fields and models of the existing entry."""
    if not isinstance(known, dict):
        return entry
    (ours,) = entry["models"]
    models = known.get("models")
    theirs = [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []
    same = next((one for one in theirs if one.get("id") == ours["id"]), {})
    others = [
        one for one in theirs if one.get("id") != ours["id"] and not str(one.get("name")).endswith(_SUFFIX)
    ]
    return {**known, **entry, "models": [{**same, **ours}, *others]}


def _add_plugin(config: Config, provider: str, extension: str) -> bool:
    """Adds the plug-in. Returns whether it was added to the list of allowed plug-ins."""
    paths = _part(config, "plugins", "load").setdefault("paths", [])
    if not isinstance(paths, list):
        raise ConfigError("openclaw.json: plugins.load.paths is not a list; correct it first")
    if extension not in paths:
        paths.append(extension)
    entry = _part(config, "plugins", "entries", PLUGIN)
    entry["enabled"] = True
    _part(entry, "hooks")["allowConversationAccess"] = True
    if provider != DEFAULT_PROVIDER or "providerId" in entry.get("config", {}):
        _part(entry, "config")["providerId"] = provider
    allowed = config["plugins"].get("allow")
    if isinstance(allowed, list) and allowed and PLUGIN not in allowed:
        allowed.append(PLUGIN)
        return True
    return False


def _remove_plugin(config: Config, notes: Mapping[str, object]) -> None:
    plugins = _part(config, "plugins")
    entries = _part(plugins, "entries")
    entries.pop(PLUGIN, None)
    if notes.get("plugin") is not None:
        entries[PLUGIN] = notes["plugin"]
    load = _part(plugins, "load")
    if isinstance(load.get("paths"), list):
        load["paths"] = [path for path in load["paths"] if path != notes["extension"]]
        if not load["paths"]:
            load.pop("paths")
    if notes.get("allowed") and isinstance(plugins.get("allow"), list):
        plugins["allow"] = [one for one in plugins["allow"] if one != PLUGIN]


def _tidy(config: Config) -> None:
    """Removes empty objects that connecting may have created."""
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
    """Returns the object at `path`, created if it is missing. Raises ConfigError if the value is not an object."""
    here = config
    for depth, key in enumerate(path):
        part = here.setdefault(key, {})
        if key == "model" and isinstance(part, str):  # short form of {"primary": ...}
            part = here[key] = {"primary": part}
        if not isinstance(part, dict):
            raise ConfigError(
                f"openclaw.json: {'.'.join(path[: depth + 1])} is not an object; correct it first"
            )
        here = part
    return here


def _address(entry: object) -> str:
    url = entry.get("baseUrl", "") if isinstance(entry, dict) else ""
    return str(url).rstrip("/")
