"""The administrator's key of a gateway with client keys: a setting, or a random key stored in `admin.key`.

A local address does not identify the administrator there, because a proxy on this machine has one too.
"""

from __future__ import annotations

import dataclasses
import logging
import secrets
import sys
from pathlib import Path

from claw_base.run_folder.admin_key import FILE, create_key
from openclaw.settings import Settings

log = logging.getLogger(__name__)


def with_admin_key(settings: Settings) -> Settings:
    """Returns the settings with an administrator key, if clients need keys.

    Raises ConfigError if the key file belongs to another user.
    """
    if settings.admin_key is not None or not settings.client_keys:
        return settings
    folder = settings.run_dir or settings.rl_buffer_dir
    if folder is None:
        log.warning(
            "OPENCLAW_ADMIN_KEY is not set, and there is no run folder to store a key in: /admin and the page are "
            "not accessible"
        )
        # a program that replaces this one on SIGHUP creates another random key
        return dataclasses.replace(settings, admin_key=secrets.token_urlsafe(32))
    key, is_new = create_key(Path(folder))
    if is_new and sys.stderr.isatty():
        print(f"admin key (shown only once): {key}", file=sys.stderr)
    log.info("the admin key for /admin and the page is in %s", Path(folder) / FILE)
    return dataclasses.replace(settings, admin_key=key)
