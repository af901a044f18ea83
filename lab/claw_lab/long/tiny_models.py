"""Writes the tiny model of the demo, and a second version of it with noise on every tensor: `tiny_models.py FOLDER
FOLDER`."""

import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from claw_lab import MODEL

NOISE = 0.2  # relative to the standard deviation of a tensor

first, second = (Path(shutil.copytree(MODEL, folder)) for folder in sys.argv[1:3])
torch.manual_seed(7)
tensors = load_file(second / "model.safetensors")
for tensor in tensors.values():
    spread = tensor.float().std().nan_to_num(1.0)
    tensor += (NOISE * spread * torch.randn(tensor.shape)).to(tensor.dtype)
save_file(tensors, second / "model.safetensors", metadata={"format": "pt"})
