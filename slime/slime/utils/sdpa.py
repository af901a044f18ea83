"""Chooses the kernels that torch's scaled dot-product attention may use in this process."""

from __future__ import annotations

import torch


def without_cudnn() -> None:
    """Disables cuDNN for the whole process; call it before the first attention.

    On H100 and H200 torch tries cuDNN first, which makes a plan for every combination of sizes and strides, some 50 ms
    each, and never frees one. Sequences of a pack and steps of a decoder hardly ever repeat a combination.

    The switch belongs to the process, not to a thread, so it holds in autograd's threads too. `sdpa_kernel` sets and
    restores the same switch: used in one thread it changes what all of them take meanwhile.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
