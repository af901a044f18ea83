"""Getters of evaluators, by OSWorld's names; `site_state` and `element_property` are ours."""

from __future__ import annotations

import shlex
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from gui_rl.scoring.setup_steps import desktop_of
from gui_rl.scoring.task import Json, TaskError
from gui_rl.screens.protocol import OpenScreen
from gui_rl.screens.sites import Visit

Getter = Callable[[OpenScreen, Visit, Json], Awaitable[Any]]


async def _rule(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    return settings.get("rules")


async def _site_state(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the state stored by pages, or one entry of it (`key`), or those of `keys`; None if it became too large
    to store."""
    if visit.full:
        return None
    if "key" in settings:
        return visit.state.get(settings["key"])
    if "keys" in settings:
        return {key: visit.state.get(key) for key in settings["keys"]}
    return visit.state


async def _element_property(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    return await screen.read(str(settings["selector"]), str(settings["property"]))


async def _active_tab_info(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    tab = await screen.active()
    return {"title": tab.title, "url": tab.url}


async def _active_url(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the URL as Chrome's address bar shows it, after `goto_prefix`."""
    url = (await screen.active()).url.partition("://")[2].removeprefix("www.")
    return str(settings.get("goto_prefix", "https://")) + url


async def _open_tabs_info(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    return [{"title": tab.title, "url": tab.url} for tab in await screen.tabs()]


async def _url_parse(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the values of `parse_keys` in the URL's query, renamed by `replace`; those of `split_list` as lists."""
    asked = parse_qs(urlsplit((await screen.active()).url).query)
    parsed: dict[str, Any] = {key: asked.get(key, [""])[0] for key in settings["parse_keys"]}
    for key in settings.get("split_list", []) if isinstance(settings.get("split_list"), list) else []:
        parsed[key] = parsed[key].split(",")
    for old, new in settings.get("replace", {}).items():
        parsed[new] = parsed.pop(old)
    return parsed


async def _command_line(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the output of a command on the desktop."""
    desktop = desktop_of(screen, "getter vm_command_line")
    return (await desktop.run(settings["command"], bool(settings.get("shell", False)))).output


async def _command_error(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the error output of a command on the desktop."""
    command = settings["command"]
    words = command if isinstance(command, str) else shlex.join(command)
    desktop = desktop_of(screen, "getter vm_command_error")
    return (await desktop.run(f"{{ {words}\n}} 2>&1 >/dev/null", True)).output


async def _file(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns the text of a file in the home folder; None if there is none."""
    data = await desktop_of(screen, "getter vm_file").file(str(settings["path"]))
    return None if data is None else data.decode(errors="replace")


GETTERS: Mapping[str, Getter] = {
    "rule": _rule,
    "site_state": _site_state,
    "element_property": _element_property,
    "active_tab_info": _active_tab_info,
    "active_url_from_accessTree": _active_url,
    "open_tabs_info": _open_tabs_info,
    "active_tab_url_parse": _url_parse,
}


DESKTOP_GETTERS: Mapping[str, Getter] = {
    "vm_command_line": _command_line,
    "vm_command_error": _command_error,
    "vm_file": _file,
}


async def get(screen: OpenScreen, visit: Visit, settings: Json) -> Any:
    """Returns a getter's value. Raises TaskError for an unknown getter or invalid settings; EnvironmentAway."""
    kind = settings.get("type")
    known = {**GETTERS, **DESKTOP_GETTERS}
    if kind not in known:
        raise TaskError(f"there is no getter {kind!r}; known: {', '.join(known)}")
    try:
        return await known[kind](screen, visit, settings)
    except (KeyError, TypeError, ValueError) as error:
        raise TaskError(f"getter {kind}: {type(error).__name__} {error}") from error
