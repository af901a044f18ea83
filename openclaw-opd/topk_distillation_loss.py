"""Alias module: the name of the top-K distillation in launch scripts."""

from openclaw_opd.loss import opd_topk as topk_distillation_loss_function

__all__ = ["topk_distillation_loss_function"]
