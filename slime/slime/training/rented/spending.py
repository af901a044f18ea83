"""What a run has cost so far, as metrics."""

from __future__ import annotations

from claw_base.run_folder.usage import cost_of, read_prices, usage_of


def spent(run_dir: str, prices: str | None, model: str) -> dict[str, float]:
    """Tokens by who asked for them and kind, over all processes of the run; US dollars where prices are known."""
    found = {
        f"tokens_{role}_{kind}": float(count)
        for role, tokens in usage_of(run_dir).items()
        for kind, count in tokens.items()
        if count
    }
    if prices:
        found["cost_usd"] = cost_of(run_dir, read_prices(prices, model))
    return found
