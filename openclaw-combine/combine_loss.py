"""The name that launch scripts know the combined loss by."""

from openclaw_combine.loss import combine as combine_loss_function

__all__ = ["combine_loss_function"]
