"""Model names in requests: `MODEL`, the served model, and `MODEL:NAME`, an adapter of it.

An adapter with the name of a client key belongs to that key: no other key may use it or learn that it exists. The
adapter `Ada` belongs to the key `ada` too, unless there is a key `Ada`. Every other adapter is available to all
clients. A key whose adapter is trained by this run is answered by it unless the request names another adapter.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Mapping

from openclaw.engine.adapters import Adapter
from openclaw.errors import ClientError
from openclaw.gateway.chat_request import SHOWN
from openclaw.settings import plain_name

log = logging.getLogger(__name__)

MOST_NAMES = 100
"""Most unknown model names in warnings; a client may invent any number."""
SEPARATOR, LATEST = ":", "latest"


class ModelNames:
    """The model names of one gateway.

    Args:
        model: name of the model that is served.
        adapters: by name.
        key_names: names of client keys.
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
        """Returns the name of the model that answers."""
        return self.model if adapter is None else f"{self.model}{SEPARATOR}{adapter.name}"

    def usable(self, key_name: str | None) -> list[str]:
        """Returns the model names that the holder of a key may use, the model itself first."""
        adapters = [one for one in self._adapters.values() if self._may_use(one, key_name)]
        return [self.model, *map(self.of, adapters)]

    def adapter(self, name: str | None, key_name: str | None) -> Adapter | None:
        """Returns the adapter that a request names; None: the model itself answers.

        Raises ClientError (404) for an adapter that the bearer of the key cannot use, and with `strict` for every
        other unknown name.
        """
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
        """Returns the adapter that is trained for a key."""
        adapter = self._adapters.get(key_name) if key_name else None
        return adapter if adapter is not None and adapter.trained else None

    def is_adapter(self, name: str) -> bool:
        """Returns whether a name can only mean an adapter: a missing adapter is never replaced by another model.
        Clients made for Ollama write `MODEL:latest` for the model itself."""
        prefix = f"{self.model}{SEPARATOR}"
        return name.startswith(prefix) and (bool(self._adapters) or name != f"{prefix}{LATEST}")

    def check(self, name: str, key_name: str | None) -> None:
        """Raises ClientError (404) for a model that does not exist, or not for the bearer of this key."""
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
        """Warns about an unknown name. Every client has some name in its settings, so the one model answers
        anyway."""
        shown = name[:SHOWN]
        if shown not in self._unknown and len(self._unknown) < MOST_NAMES:
            self._unknown.add(shown)
            log.warning(
                "requests for the unknown model %r are answered by %r, which is served", shown, self.model
            )


@functools.lru_cache(1024)
def _alike(name: str, key_names: frozenset[str]) -> frozenset[str]:
    """Returns the key of this name; else those that differ only in case or Unicode form."""
    alike = (key for key in key_names if plain_name(key) == plain_name(name))
    return frozenset({name} if name in key_names else alike)
