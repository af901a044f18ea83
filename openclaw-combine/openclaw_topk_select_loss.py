"""Alias module: the name of the hybrid's loss in launch scripts."""

from openclaw_combine.loss import topk_select as openclaw_topk_select_loss_function

__all__ = ["openclaw_topk_select_loss_function"]
