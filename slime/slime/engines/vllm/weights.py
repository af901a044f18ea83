"""Verified two-phase weight updates: prepare reads and checks a folder, switch loads it while requests are
paused.

vLLM has one set of weights. It is paused between two steps; requests keep their tokens, and their keys and
values are recomputed by the new weights. Before the first token of the new version, the live weights are
compared with the files: bitwise on a CPU, by fingerprints computed beforehand on a GPU. Log-probs are
compared right after. Incorrectly loaded weights are replaced by the old ones before anything runs.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from slime.engines.requests import WeightsError
from slime.engines.vllm.engine import HostedEngine
from slime.errors import EngineError
from slime.weights.artifact import Artifact, holds, read_artifact
from slime.weights.checksum import LM_HEAD
from slime.weights.probe import Probe, expected_probe

logger = logging.getLogger(__name__)


class BrokenEngineError(WeightsError):
    """Neither the new weights nor the old ones could be loaded: the engine must be restarted."""


@dataclass(frozen=True)
class Version:
    """A folder that was read. `checksum` is empty if the live weights were found to differ from it."""

    number: int
    path: str
    artifact: Artifact
    probe: Probe
    checksum: str


class HostedWeights:
    """The live version of one engine and at most one prepared version.

    `lock` is held while weights change.

    Args:
        limit: --weight-probe-limit.
    """

    def __init__(self, engine: HostedEngine, limit: float | None = None) -> None:
        self._engine, self._limit = engine, limit
        self.lock = asyncio.Lock()
        self._prepared: Version | None = None
        self._live: Version | None = None

    @property
    def live(self) -> Version:
        assert self._live is not None, "prove_first must be called first"
        return self._live

    async def prove_first(self, path: str, number: int, checksum: str | None) -> None:
        """Verifies the weights that vLLM has loaded itself.

        Args:
            checksum: expected checksum of the folder; None: not checked.
        """
        async with self.lock:
            first = await asyncio.to_thread(read_version, path, number)
            if checksum is not None and not await asyncio.to_thread(holds, path, checksum):
                raise WeightsError(
                    f"{path} does not contain the weights listed in the weights file: its checksum differs"
                )
            await self._engine.name_version(number)
            await self._compare(first)
            self._live = first
            await self._probe()

    async def prepare(self, path: str, number: int) -> str:
        """Reads and checks a version; returns its checksum. Can be repeated. Raises WeightsError."""
        async with self.lock:
            for known in (self._live, self._prepared):
                if known is not None and known.checksum and (known.number, known.path) == (number, path):
                    return known.checksum
            self._prepared = None
            new = await asyncio.to_thread(read_version, path, number)
            difference = self.live.artifact.difference(new.artifact)
            if difference is not None:
                raise WeightsError(f"{path} {difference}")
            if self._engine.tied and LM_HEAD in new.artifact.shapes:
                raise WeightsError(
                    f"{LM_HEAD} is tied to the embedding, but {path} stores different values for it"
                )
            try:
                await self._engine.expect(path)
            except Exception as error:  # of any kind, from another process
                raise WeightsError(f"vLLM's workers cannot read {path}: {error}") from error
            self._prepared = new
            return new.checksum

    async def switch(self, number: int) -> str:
        """Makes the prepared version live and verifies it; no-op if it already is live. Returns its checksum.

        Raises:
            WeightsError: it is not prepared, or verification failed.
            BrokenEngineError: neither version can be served.
        """
        async with self.lock:
            new = self._prepared
            if new is None or new.number != number:
                if self.live.number != number or not self.live.checksum:
                    raise WeightsError(
                        f"weight_version {number} is not prepared; version {self.live.number} is live"
                    )
                return self.live.checksum
            await self._replace(new)
            await self._probe()
            return self.live.checksum

    async def discard(self) -> None:
        async with self.lock:
            self._prepared = None

    async def _replace(self, new: Version) -> None:
        """Loads and verifies a version between two steps; restores the old one after a failure."""
        if not self._engine.paused:
            await self._engine.pause("retract")
        failure: WeightsError | None = None
        try:
            await self._load(new)
            self._live, self._prepared = new, None
        except WeightsError as error:
            failure = error
            await self._load_back(error)
        if not self._engine.paused:
            await self._engine.resume()
        if failure is not None:
            raise failure

    async def _load_back(self, error: WeightsError) -> None:
        logger.error("the update failed, version %d is loaded again: %s", self.live.number, error)
        try:
            await self._load(self.live)
        except WeightsError as worse:
            raise BrokenEngineError(
                f"{error}; then loading the previous version failed too: {worse}"
            ) from worse

    async def _load(self, version: Version) -> None:
        try:
            await self._engine.load(version.path, version.number)
        # Loads and compares a version between two steps; restores the old one after a failure.
        except Exception as error:
            raise WeightsError(f"vLLM could not load {version.path}: {error}") from error
        await self._compare(version)

    async def _compare(self, version: Version) -> None:
        report = await self._engine.compare(version.path)
        if report.wrong:
            raise WeightsError(
                f"version {version.number}: {len(report.wrong)} tensors in vLLM differ from those in {version.path}, for "
                f"example {report.wrong[0]}"
            )
        logger.info("version %d: %d tensors compared", version.number, report.compared)

    async def _probe(self) -> None:
        """Compares log-probs of the whole model, which cannot be computed while the engine is paused."""
        if self._engine.paused:
            return
        live = self.live
        probe = replace(live.probe, limit=self._limit)
        difference = probe.difference(await self._engine.score(probe.ids), self._engine.dtype)
        if difference is not None:
            self._live = replace(live, checksum="")
            raise WeightsError(f"version {live.number}: {difference}: vLLM does not serve {live.path}")


def read_version(path: str, number: int) -> Version:
    """Reads a version's folder. Raises WeightsError: files are unreadable, values not finite, or the model is
    unknown."""
    try:
        artifact = read_artifact(path)
        return Version(number, path, artifact, expected_probe(path), artifact.checksum)
    except EngineError as error:
        raise WeightsError(str(error)) from error
