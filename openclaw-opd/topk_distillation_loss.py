"""The name that launch scripts know the top-K distillation by."""

from __future__ import annotations

from slime.losses.custom import NamedLoss

topk_distillation_loss_function = NamedLoss("opd_topk")
