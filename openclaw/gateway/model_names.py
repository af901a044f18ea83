"""Model names in requests: `MODEL` is the served model, `MODEL:NAME` an adapter of it.

An adapter with the name of a client key belongs to that key: requests with other keys are answered as if it did not
exist. The adapter `Ada` also belongs to the key `ada`, unless there is a key `Ada`. All clients may use every other
adapter. If this run trains the adapter of a key, that adapter answers the key's requests, unless they name another.
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
"""Most unknown model names that are logged, because a client may send any number of them."""
SEPARATOR, LATEST = ":", "latest"


class ModelNames:
    """Resolves the model names in requests.

    Args:
        model: name of the served model.
        adapters: adapters by name.
        key_names: names of the client keys.
        strict: whether requests with an unknown model name are rejected.
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
        """Returns the model name of an adapter; of the served model for None."""
        return self.model if adapter is None else f"{self.model}{SEPARATOR}{adapter.name}"

    def usable(self, key_name: str | None) -> list[str]:
        """Returns the model names that a key may use, the served model first."""
        adapters = [one for one in self._adapters.values() if self._may_use(one, key_name)]
        return [self.model, *map(self.of, adapters)]

    def adapter(self, name: str | None, key_name: str | None) -> Adapter | None:
        """Returns the adapter that answers a request; None for the served model.

        Raises:
            ClientError: 404 for an adapter that does not exist or belongs to another key, and with `strict` for any
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
        """Returns the adapter that this run trains for a key; None if there is none."""
        adapter = self._adapters.get(key_name) if key_name else None
        return adapter if adapter is not None and adapter.trained else None

    def is_adapter(self, name: str) -> bool:
        """Returns whether a name is that of an adapter, which may not exist. `MODEL:latest`, which clients for Ollama
        send, is not one unless there are adapters."""
        prefix = f"{self.model}{SEPARATOR}"
        return name.startswith(prefix) and (bool(self._adapters) or name != f"{prefix}{LATEST}")

    def check(self, name: str, key_name: str | None) -> None:
        """Raises ClientError (404) for a model name that this key may not use."""
        if name not in self.usable(key_name):
            raise self._absent(name, key_name)

    def _may_use(self, adapter: Adapter, key_name: str | None) -> bool:
        owners = _owners(adapter.name, self._key_names)
        return not owners or key_name in owners

    def _absent(self, name: str, key_name: str | None) -> ClientError:
        available = ", ".join(map(repr, self.usable(key_name)[:10]))
        message = f"the model {name[:SHOWN]!r} does not exist; this server has {available}"
        return ClientError(message, "model", "model_not_found", 404)

    def _warn(self, name: str) -> None:
        """Logs an unknown model name once. The request is answered anyway: many clients send a fixed name."""
        shown = name[:SHOWN]
        if shown not in self._unknown and len(self._unknown) < MOST_NAMES:
            self._unknown.add(shown)
            log.warning(
                "requests name the unknown model %r; the served model %r answers them", shown, self.model
            )


@functools.lru_cache(1024)
def _owners(name: str, key_names: frozenset[str]) -> frozenset[str]:
    """Returns the keys that own an adapter: the key of its name, or else those that differ only in case or Unicode
    form."""
    similar = (key for key in key_names if plain_name(key) == plain_name(name))
    return frozenset({name} if name in key_names else similar)
