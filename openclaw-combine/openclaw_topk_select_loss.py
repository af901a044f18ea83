"""The name that launch scripts know the hybrid's loss by."""

from __future__ import annotations

from slime.losses.custom import NamedLoss

openclaw_topk_select_loss_function = NamedLoss("topk_select")
