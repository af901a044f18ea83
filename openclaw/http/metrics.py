"""Prometheus metrics of serving."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


class Metrics:
    """The gateway's own numbers; one registry an app."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.answers = Counter(
            "openclaw_answers", "Chat answers by how they ended.", ["outcome"], registry=self.registry
        )
        self.tokens = Counter(
            "openclaw_tokens", "Tokens of complete answers.", ["kind"], registry=self.registry
        )
        self.open = Gauge("openclaw_open_requests", "Chat requests being answered.", registry=self.registry)
        self.first_token = Histogram(
            "openclaw_first_token_seconds",
            "Time to the first token.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.whole = Histogram(
            "openclaw_answer_seconds",
            "Time to the end of an answer.",
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.restarts = Gauge(
            "openclaw_engine_restarts",
            "Generations that went on after an engine broke off.",
            registry=self.registry,
        )
