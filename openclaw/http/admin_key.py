"""The administrator's key if client keys are set: configured, or created at the first start and stored in
`admin.key`.

A gateway with client keys may be behind a proxy that looks like a local client, so a local address proves nothing.
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
    """Returns the settings with an admin key, if clients need keys. Raises ConfigError for a key file of another
    user."""
    if settings.admin_key is not None or not settings.client_keys:
        return settings
    folder = settings.run_dir or settings.rl_buffer_dir
    if folder is None:
        log.warning("clients need keys, and no OPENCLAW_ADMIN_KEY is set: /admin and the page are closed")
        # a program that replaces this one on SIGHUP creates another random key
        return dataclasses.replace(settings, admin_key=secrets.token_urlsafe(32))
    key, is_new = made_key(Path(folder))
    if is_new and sys.stderr.isatty():
        print(f"admin key, shown this once: {key}", file=sys.stderr)
    log.info("the admin key for /admin and the page is in %s", Path(folder) / FILE)
    return dataclasses.replace(settings, admin_key=key)
