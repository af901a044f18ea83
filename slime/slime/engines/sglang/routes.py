"""Verified weight updates of an SGLang engine.

SGLang has one set of weights. `prepare` reads and checks the files without the engine; `switch` loads them
into the engine (see `slime.engines.sglang.transport`) while its requests are paused. With `retract` they keep
their tokens, and their keys and values are recomputed by the new weights, so the cache contains nothing of
the old ones.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, replace
from typing import Any, Protocol

from slime.engines.protocol import EngineControlError, EngineInfo, HttpCall
from slime.engines.sglang.transport import LOADING, REFUSED, Disk, Transport
from slime.errors import EngineError
from slime.weights.artifact import Artifact, read_artifact
from slime.weights.checksum import EMBEDDING_SUFFIX, LM_HEAD
from slime.weights.probe import expected_probe

logger = logging.getLogger(__name__)

JOINED = (
    (r"\.[qkv]_proj\.weight$", ".qkv_proj.weight"),
    (r"\.experts\.\d+\.(gate|up)_proj\.weight$", ".experts.w13_weight"),
    (r"\.experts\.\d+\.down_proj\.weight$", ".experts.w2_weight"),
    (r"\.(gate|up)_proj\.weight$", ".gate_up_proj.weight"),
)
"""Patterns of weight names in a folder, and the fused SGLang weight that contains them."""
MIXED = -1
"""Version number of an engine that holds tensors of two versions."""


@dataclass(frozen=True)
class Loaded:
    """A version and the contents of its folder."""

    version: int
    path: str
    artifact: Artifact


@dataclass(frozen=True)
class Proof:
    """A verified live version, with the engine's own hash of each of its tensors."""

    loaded: Loaded
    digests: dict[str, str]

    @property
    def checksum(self) -> str:
        return self.loaded.artifact.checksum


class MemoryNotes(Protocol):
    """Identifies an engine's process, and records which process has released its GPU memory."""

    def process(self) -> str: ...

    def note(self, process: str) -> None: ...


class NoNotes:
    """Notes for an engine whose process is unknown."""

    def process(self) -> str:
        return ""

    def note(self, process: str) -> None:
        """Records nothing, because the process is unknown."""


class SGLangRoutes:
    """Control requests to one SGLang engine, and the client's knowledge of its weights.

    Attributes:
        transport: transfers a version to the engine.
        prepared: the version that was read and checked and is not live.
        proven: the last version that was verified to be served.
        doubted: (version, folder) that the engine was requested to load and that was not verified since.
        memory: records which process has released its GPU memory, for the next driver.
        gave_back: the process whose memory this client has released.
        limit: --weight-probe-limit.
    """

    def __init__(
        self,
        transport: Transport | None = None,
        memory: MemoryNotes | None = None,
        limit: float | None = None,
    ) -> None:
        self.limit = limit
        self.transport = transport or Disk()
        self.prepared: Loaded | None = None
        self.proven: Proof | None = None
        self.doubted: tuple[int, str] | None = None
        self.memory = memory or NoNotes()
        self.gave_back: str | None = None

    @property
    def released(self) -> bool:
        """Returns whether the current engine process has released its memory."""
        return self.gave_back is not None and self.gave_back == self.memory.process()

    def prepare(self, call: HttpCall, path: str, version: int) -> str:
        """Reads the files and compares their tensors with the live ones."""
        new = Loaded(version, path, _read(path))
        try:
            difference = read_artifact(self._named(call)[1]).difference(new.artifact)
        except EngineError:
            difference = None  # the live folder was deleted; the engine itself compares
        if difference is not None:
            raise EngineControlError(f"{path} {difference}", REFUSED)
        self.prepared = new
        return new.artifact.checksum

    def switch(self, call: HttpCall, version: int) -> str:
        """Loads the prepared version and verifies it; no-op if it is already verified."""
        new = self.prepared
        live = self.info(call)  # also verifies the live version, as the basis of comparison
        if new is None or new.version != version:
            if live.version != version or not live.checksum:
                raise EngineControlError(f"weight_version {version} is not prepared", REFUSED)
            return live.checksum
        self.doubted = (new.version, new.path)
        self.transport.load(call, new.path, new.version, self.released)
        if self._named(call) != self.doubted:
            raise EngineControlError(
                f"version {new.version} was loaded, but the engine reports another version or folder", REFUSED
            )
        self.proven = self._prove(call, new)
        self.prepared = self.doubted = None
        return self.proven.checksum

    def discard(self, call: HttpCall) -> None:
        self.prepared = None

    def info(self, call: HttpCall) -> EngineInfo:
        """Returns the weights that the engine serves; `checksum` is empty if they differ from their folder."""
        version, path = self._named(call)
        if version == MIXED:
            return EngineInfo(version, "", path, None)
        if self.proven is None or (self.proven.loaded.version, self.proven.loaded.path) != (version, path):
            if (version, path) == self.doubted:
                return EngineInfo(version, "", path, None)
            if self.proven is None and not self.released:
                call("POST", "/continue_generation", {})  # a killed driver may have left it paused
            try:
                self.proven = self._prove(call, Loaded(version, path, _read(path)))
            except EngineControlError as error:
                if error.status != REFUSED:
                    raise
                logger.warning("the engine does not serve version %d: %s", version, error)
                return EngineInfo(version, "", path, None)
        return EngineInfo(version, self.proven.checksum, path, None)

    def release_memory(self, call: HttpCall) -> None:
        """Releases the GPU memory, once per engine process.

        SGLang crashes on a second release, and on a resume without a release. A restarted process holds its
        memory again.
        """
        if not self.released:
            process = self.memory.process()
            call("POST", "/pause_generation", {"mode": "retract"})
            self.memory.note(process)  # before the request, because the driver may die here
            call("POST", "/release_memory_occupation", {})
            self.gave_back = process

    def resume_memory(self, call: HttpCall) -> None:
        """Lets the engine reallocate its GPU memory, if this engine process has released it."""
        if self.released:
            call("POST", "/resume_memory_occupation", {})
            call("POST", "/continue_generation", {})
        self.gave_back = None
        self.memory.note("")

    def _named(self, call: HttpCall) -> tuple[int, str]:
        """Returns the version and folder reported by the engine; `MIXED` while it holds two versions."""
        answer = call("GET", "/model_info")
        label, path = str(answer["weight_version"]), str(answer["model_path"])
        if label.startswith(LOADING):
            return MIXED, path
        # an engine that never got a version reports "default": the model as loaded, 0
        return int(label) if label.isdigit() else 0, self.transport.folder_of(label, path)

    def _prove(self, call: HttpCall, new: Loaded) -> Proof:
        digests = tensor_digests(call)
        if self.proven is not None:
            check_digests(self.proven, new, digests)
        if not self.released:
            check_probe(call, new, self.limit)
        return Proof(new, digests)


def tensor_digests(call: HttpCall) -> dict[str, str]:
    """Returns SGLang's own hash of each tensor, by "rank/name"."""
    answer = call("POST", "/weights_checker", {"action": "checksum"})
    return {
        f"{rank}/{name}": digest
        for rank, digests in enumerate(answer["ranks"])
        for name, digest in digests["checksums"].items()
    }


def joined(name: str) -> set[str]:
    """Returns the names of the engine's tensors that contain this tensor of a folder, including its own name."""
    return {name} | {re.sub(pattern, whole, name) for pattern, whole in JOINED}


def check_digests(old: Proof, new: Loaded, digests: dict[str, str]) -> None:
    """Compares the tensors that changed in the engine with those that changed on disk.

    Some ranks may hold unchanged rows of a tensor: it counts as changed if it changed on any rank.

    Raises:
        EngineControlError: a tensor that changed on disk is unchanged in the engine.
    """
    changed = old.loaded.artifact.changed(new.artifact)
    moved = [key.split("/", 1) for key, digest in digests.items() if old.digests.get(key) != digest]
    if changed and not moved:
        raise EngineControlError(
            f"version {new.version}: the engine reported success, but none of its tensors changed", REFUSED
        )
    if any(name.endswith(EMBEDDING_SUFFIX) for name in changed) and LM_HEAD not in new.artifact.shapes:
        changed.add(LM_HEAD)  # tied weights: an engine with a separate head must also have loaded the head
    changed = {one for name in changed for one in joined(name)}
    ranks, names = {rank for rank, _ in moved}, {name for _, name in moved}
    held = [key.split("/", 1) for key in digests]
    stale = sorted(
        f"{rank}/{name}"
        for rank, name in held
        if name in changed and (rank not in ranks or name not in names)
    )
    if stale:
        raise EngineControlError(
            f"version {new.version}: {len(stale)} tensors in the engine were not replaced, for example {stale[0]}",
            REFUSED,
        )


def check_probe(call: HttpCall, expected: Loaded, limit: float | None = None) -> None:
    """Compares log-probs of fixed ids with those expected from the files; `limit` replaces the default limit.

    Raises:
        EngineControlError: they differ too much.
    """
    try:
        probe = replace(expected_probe(expected.path), limit=limit)
    except EngineError as error:
        raise EngineControlError(str(error), REFUSED) from error
    dtype = str(call("GET", "/server_info").get("dtype"))
    if (difference := probe.difference(scored(call, probe.ids), dtype)) is not None:
        raise EngineControlError(
            f"version {expected.version}: {difference}: a tensor is stale, or the engine does not "
            f"serve {expected.path}",
            REFUSED,
        )


def scored(call: HttpCall, ids: list[int]) -> list[float]:
    """Returns the engine's log-probs of `ids` [T - 1]."""
    answer: dict[str, Any] = call(
        "POST",
        "/generate",
        {
            "input_ids": ids,
            "sampling_params": {"max_new_tokens": 1, "temperature": 0.0},
            "return_logprob": True,
            "logprob_start_len": 0,
        },
    )
    try:
        entries = answer["meta_info"]["input_token_logprobs"][1:]
        return [float(entry[0]) for entry in entries]
    except (KeyError, TypeError, IndexError) as error:
        raise EngineControlError(f"the engine returned no valid input_token_logprobs: {error!r}") from error


def _read(path: str) -> Artifact:
    try:
        return read_artifact(path)
    except EngineError as error:
        raise EngineControlError(str(error), REFUSED) from error
