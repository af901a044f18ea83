"""Prometheus metrics of the gateway."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The metrics of one application, in a registry of its own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "openclaw_answers", "Chat answers by outcome.", ["outcome"], registry=self.registry
        )
        self.tokens = Counter(
            "openclaw_tokens",
            "Tokens of complete answers by kind: prompt, completion.",
            ["kind"],
            registry=self.registry,
        )
        self.open = Gauge("openclaw_open_requests", "Chat requests in progress.", registry=self.registry)
        self.first_token = Histogram(
            "openclaw_first_token_seconds",
            "Time to the first token, in seconds.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.whole = Histogram(
            "openclaw_answer_seconds",
            "Time to the end of an answer, in seconds.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.restarts = Gauge(
            "openclaw_engine_restarts",
            "Generations that were continued after a failure of their engine.",
            registry=self.registry,
        )
        self.turns = self._by("turns", "Stored turns by state.", "state")
        self.samples = self._by("samples", "Samples by state.", "state")
        self.dropped = self._by("dropped", "Turns and samples that are not trained, by reason.", "reason")
        self.version = self._one("weight_version", "The live weight version.")
        self.unjudged = self._one("judge_failing_turns", "Turns whose judgement failed and will be retried.")
        self.store_up = self._one("store_up", "1 if turns can be stored, else 0.")

    def collect(self, counts: Mapping[str, Mapping[str, int]], version: int) -> None:
        """Sets the gauges to the counts of the store, see `StatusTable.counts`."""
        for name, gauge in (("turns", self.turns), ("samples", self.samples), ("dropped", self.dropped)):
            gauge.clear()
            for label, number in counts[name].items():
                gauge.labels(label).set(number)
        self.unjudged.set(sum(counts["judge_failures"].values()))
        self.version.set(version)

    def _by(self, name: str, about: str, label: str) -> Gauge:
        return Gauge(f"openclaw_{name}", about, [label], registry=self.registry)

    def _one(self, name: str, about: str) -> Gauge:
        return Gauge(f"openclaw_{name}", about, registry=self.registry)
