"""Chooses the kernels that torch's scaled dot-product attention may use in this process."""

from __future__ import annotations

import torch


def without_cudnn() -> None:
    """Disables cuDNN attention for the whole process; call it before the first attention.

    On H100 and H200, torch prefers cuDNN. That creates a plan for every combination of sizes and strides, about 50 ms
    each, and never frees one. Packed sequences and decoding steps rarely repeat a combination.

    The setting is per process, not per thread, so it also applies to autograd's threads. `sdpa_kernel` changes and
    restores the same setting, so using it in one thread affects all others.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
