"""Training metrics by version, as charts of a few lines each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from openclaw.views.source import ViewSource

Json = dict[str, Any]


@dataclass(frozen=True)
class Chart:
    """A chart. `lines`: display name by metric; a metric that ends in / stands for all metrics with this prefix."""

    title: str
    about: str
    lines: dict[str, str]


CHARTS = (
    Chart(
        "Reward",
        "Mean reward of the batch of each version; thanks count +1, complaints −1.",
        {"rollout/raw_reward": "reward", "rollout/prm_eval_score": "judge's score"},
    ),
    Chart(
        "Distance to the first model",
        "KL divergence from the reference model, nats a token.",
        {"train/kl_loss": "KL to the reference", "train/ppo_kl": "KL to the version before"},
    ),
    Chart(
        "Entropy",
        "Nats a token; near 0 the model always gives the same answer.",
        {"train/entropy": "entropy"},
    ),
    Chart(
        "Length of answers",
        "Tokens an answer, in each batch.",
        {"rollout/response_len/mean": "mean", "rollout/response_len/max": "longest"},
    ),
    Chart("Gate", "The gate's measurements of each candidate version.", {"gate/": ""}),
    Chart(
        "Trainer and engine",
        "Difference of their log-probs of the same tokens, in nats; near 0 if the weights are the same.",
        {
            "train/train_rollout_logprob_abs_diff": "same weights",
            "train/train_rollout_logprob_abs_diff_stale": "older weights",
            "train/train_rollout_logprob_abs_diff_spanning": "across an update",
        },
    ),
    Chart(
        "Incomplete and repetitive answers",
        "Share of each batch.",
        {"rollout/truncated_ratio": "truncated", "rollout/repetition_frac": "repeating"},
    ),
    Chart("Gradient", "Norm before clipping.", {"train/grad_norm": "norm"}),
    Chart(
        "Time of an update",
        "Seconds: waiting for samples, training, loading the new weights into engines.",
        {
            "perf/wait_time": "waiting",
            "perf/train_time": "training",
            "perf/update_weights_time": "going live",
        },
    ),
)
LAST_ROWS = 12


def learning(source: ViewSource) -> Json:
    """Returns `{"x": versions, "steps", "times", "charts": [{"title", "about", "lines": [{"name", "metric",
    "values"}]}]}`.

    Charts without data are omitted. A missing value is None.
    """
    rows = source.curves.rows() if source.curves else []
    rows = [row for row in rows if "weights/version" in row]
    charts = [
        {"title": chart.title, "about": chart.about, "lines": lines}
        for chart in CHARTS
        if (lines := _lines(chart, rows))
    ]
    return {
        "object": "learning",
        "x": [int(row["weights/version"]) for row in rows],
        "steps": [int(row["step"]) for row in rows],
        "times": [row.get("time") for row in rows],
        "charts": charts,
    }


def table(learning: Json) -> list[Json]:
    """Returns the newest values of each chart, newest first, for an accessible table."""
    shown = []
    for chart in learning["charts"]:
        rows = []
        for index in reversed(range(len(learning["x"]))):
            values = [line["values"][index] for line in chart["lines"]]
            rows.append({"version": learning["x"][index], "values": values})
        shown.append({**chart, "rows": rows[:LAST_ROWS]})
    return shown


def _lines(chart: Chart, rows: list[dict[str, float]]) -> list[Json]:
    names: dict[str, str] = {}
    for metric, name in chart.lines.items():
        if metric.endswith("/"):
            metric_names = sorted({one for row in rows for one in row if one.startswith(metric)})
            names |= {one: one.removeprefix(metric).replace("_", " ") for one in metric_names}
        else:
            names[metric] = name
    lines = [
        {"name": name, "metric": metric, "values": [row.get(metric) for row in rows]}
        for metric, name in names.items()
    ]
    return [line for line in lines if any(value is not None for value in line["values"])]
