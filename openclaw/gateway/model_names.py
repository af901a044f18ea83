"""Models that a request may name: `MODEL`, the one that is served, and `MODEL:NAME`, an adapter on it.

An adapter that is called like a client's key belongs to that key: no other key may use it or learn that it is there.
The adapter `Ada` belongs to the key `ada` too, unless there is a key `Ada`. Every other adapter is for all clients. A key
whose adapter is trained by this run is answered by it unless the request names another adapter.
"""

from __future__ import annotations

import functools
import logging
import unicodedata
from collections.abc import Collection, Mapping

from openclaw.engine.adapters import Adapter
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import SHOWN

log = logging.getLogger(__name__)

MOST_NAMES = 100
"""Unknown model names that are warned of; a client may invent any number."""
SEPARATOR, LATEST = ":", "latest"


class ModelNames:
    """The names of one gateway.

    Args:
        model: name of the model that is served.
        adapters: by name.
        key_names: of client keys.
        strict: whether a request for another model is rejected.
    """

    def __init__(
        self, model: str, adapters: Mapping[str, Adapter], key_names: Collection[str], strict: bool
    ) -> None:
        self.model = model
        self._adapters = adapters
        self._key_names = frozenset(key_names)
        self._strict = strict
        self._unknown: set[str] = set()

    def of(self, adapter: Adapter | None) -> str:
        """The name of the model that answers."""
        return self.model if adapter is None else f"{self.model}{SEPARATOR}{adapter.name}"

    def usable(self, key_name: str | None) -> list[str]:
        """Returns the model names that the holder of a key may use, the model itself first."""
        adapters = [one for one in self._adapters.values() if self._may_use(one, key_name)]
        return [self.model, *map(self.of, adapters)]

    def adapter(self, name: str | None, key_name: str | None) -> Adapter | None:
        """The adapter that a request names; None: the model itself answers.

        Raises ClientError (404) for an adapter that the bearer of the key cannot use, and with `strict` for every other
        name that is not served."""
        if name is None or name == self.model:
            return self._own(key_name)
        adapter = self._adapters.get(name.removeprefix(f"{self.model}{SEPARATOR}"))
        if self.is_adapter(name):
            if adapter is None or not self._may_use(adapter, key_name):
                raise self._absent(name, key_name)
            return adapter
        if self._strict:
            raise self._absent(name, key_name)
        self._warn(name)
        return self._own(key_name)

    def _own(self, key_name: str | None) -> Adapter | None:
        """The adapter that is trained for a key."""
        adapter = self._adapters.get(key_name) if key_name else None
        return adapter if adapter is not None and adapter.trained else None

    def is_adapter(self, name: str) -> bool:
        """Whether a name can only mean an adapter: one that is not there is never answered by another. Clients that were
        made for Ollama write `MODEL:latest` for the model itself."""
        prefix = f"{self.model}{SEPARATOR}"
        return name.startswith(prefix) and (bool(self._adapters) or name != f"{prefix}{LATEST}")

    def check(self, name: str, key_name: str | None) -> None:
        """Raises ClientError (404) for a model that is not served here, or not to the bearer of this key."""
        if name not in self.usable(key_name):
            raise self._absent(name, key_name)

    def _may_use(self, adapter: Adapter, key_name: str | None) -> bool:
        owners = _alike(adapter.name, self._key_names)
        return not owners or key_name in owners

    def _absent(self, name: str, key_name: str | None) -> ClientError:
        known = ", ".join(map(repr, self.usable(key_name)[:10]))
        message = f"the model {name[:SHOWN]!r} does not exist; this server has {known}"
        return ClientError(message, "model", "model_not_found", 404)

    def _warn(self, name: str) -> None:
        """Every client has some name in its settings, and there is one model: it answers."""
        shown = name[:SHOWN]
        if shown not in self._unknown and len(self._unknown) < MOST_NAMES:
            self._unknown.add(shown)
            log.warning(
                "requests for the model %r are answered by %r, the one that is served", shown, self.model
            )


@functools.lru_cache(1024)
def _alike(name: str, key_names: frozenset[str]) -> frozenset[str]:
    """Returns the key of this name; else those whose names differ in capital letters or in the form of a character."""
    plain = {key: unicodedata.normalize("NFKC", key).casefold() for key in key_names}
    folded_name = unicodedata.normalize("NFKC", name).casefold()
    return frozenset(
        {name} if name in key_names else (key for key, one in plain.items() if one == folded_name)
    )
