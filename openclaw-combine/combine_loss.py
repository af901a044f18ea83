"""The name that launch scripts know the combined loss by."""

from __future__ import annotations

from slime.losses.custom import NamedLoss

combine_loss_function = NamedLoss("combine")
