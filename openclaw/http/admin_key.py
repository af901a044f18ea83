"""The administrator's key where client keys are set: given, or made at the first start and kept in `admin.key`.

A gateway that asks its clients for keys is meant for others too, perhaps through a proxy that looks like this machine, so
that an address proves nothing.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import sys
from pathlib import Path

from claw_base.run_folder.admin_key import FILE, made_key
from openclaw.settings import Settings

log = logging.getLogger(__name__)


def with_admin_key(settings: Settings) -> Settings:
    """The same settings with an admin key, if clients need keys. Raises ConfigError for a key file of another user."""
    if settings.admin_key is not None or not settings.client_keys:
        return settings
    folder = settings.run_dir or settings.rl_buffer_dir
    if folder is None:
        log.warning("clients need keys, and no OPENCLAW_ADMIN_KEY is set: /admin and the page are closed")
        # A program that takes this one's place on SIGHUP makes another one, which is not known either
        return dataclasses.replace(settings, admin_key=secrets.token_urlsafe(32))
    key, is_new = made_key(Path(folder))
    if is_new and sys.stderr.isatty():
        print(f"admin key, shown this once: {key}", file=sys.stderr)
    log.info("the admin key for /admin and the page is in %s", Path(folder) / FILE)
    return dataclasses.replace(settings, admin_key=key)
