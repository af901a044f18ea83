"""Environment variables of on-policy distillation's launch scripts, by trainer flag."""

from __future__ import annotations

VARIABLES = {
    "distill_topk": ("OPENCLAW_TOPK_K",),
    "distill_subset_mode": ("OPENCLAW_TOPK_SUBSET_MODE",),
    "hint_selection": ("OPENCLAW_TOPK_HINT_SELECTION",),
    "hint_m": ("OPENCLAW_TOPK_MAX_CAND",),
}
