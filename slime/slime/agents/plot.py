"""pass@1 over rollouts as an SVG text, with its interval as a band."""

from __future__ import annotations

from collections.abc import Sequence

from slime.agents.scores import Evaluation
from slime.utils.line_chart import COLOURS, LineChart, words

BLUE, ORANGE = COLOURS[:2]


def curve(evaluations: Sequence[Evaluation]) -> str:
    """pass@1 with its 95 % band, and the share of attempts that called a tool, of one data set."""
    known = [found for found in evaluations if found.solved]
    last = max([1, *(found.rollout_id for found in known)])
    chart = LineChart(last)
    scores = [(found.rollout_id, found.pass_at(1)) for found in known]
    upper = [(x, score.high) for x, score in scores]
    lower = [(x, score.low) for x, score in reversed(scores)]
    above = chart.top - 16
    return chart.svg(
        [
            *chart.axes(max(1, round(last / 8)), "rollouts"),
            chart.band([*upper, *lower], BLUE),
            chart.line([(x, score.value) for x, score in scores], BLUE),
            chart.line([(found.rollout_id, found.tool_use) for found in known], ORANGE, dashed=True),
            words(chart.left, above, f"{evaluations[0].dataset}: pass@1 with 95 % interval", "start", BLUE),
            words(chart.width - chart.right, above, "share that called a tool", "end", ORANGE),
        ]
    )
