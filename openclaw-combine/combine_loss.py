"""Alias module: the name of the combined loss in launch scripts."""

from openclaw_combine.loss import combine as combine_loss_function

__all__ = ["combine_loss_function"]
