"""The tiny models and samples with hints for tests of distillation."""

from tests.slime.training.distillation.conftest import (
    make_args,
    make_samples,
    model_folder,
    one_thread,
    other_folder,
)

__all__ = ["make_args", "make_samples", "model_folder", "one_thread", "other_folder"]
