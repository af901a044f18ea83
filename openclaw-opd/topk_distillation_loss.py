"""The name that launch scripts know the top-K distillation by."""

from openclaw_opd.loss import opd_topk as topk_distillation_loss_function

__all__ = ["topk_distillation_loss_function"]
