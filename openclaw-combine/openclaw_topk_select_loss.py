"""The name that launch scripts know the hybrid's loss by."""

from openclaw_combine.loss import topk_select as openclaw_topk_select_loss_function

__all__ = ["openclaw_topk_select_loss_function"]
