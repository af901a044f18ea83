#!/usr/bin/env bash
# The Triton kernels of Qwen3.5's linear attention, without a GPU: all that training launches are compiled for an H100,
# in bf16 and in fp32, and interpreted on the CPU against torch. In a Python of its own (.7 GB of downloads the first time).
# Usage: bash lab/claw_lab/long/triton_kernels.sh [FOLDER OF THE ENVIRONMENT]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=engine.sh
source "$(dirname "${BASH_SOURCE[0]}")/engine.sh"
env_dir=${1:-$HOME/.cache/openclaw-rl/triton-kernels}
triton=3.7.1 # what torch's CUDA build asks for; its CPU build brings none

[ -x "$env_dir/bin/python" ] || "$python" -m venv "$env_dir"
mapfile -t pins < <(grep -hE '^(torch|transformers|flash-linear-attention)==' "$root/requirements.txt" \
  "$root/instructions/requirements-gpu.txt")
"$env_dir/bin/pip" install -q "${pins[0]}"
"$env_dir/bin/pip" install -q "${pins[@]}" "triton==$triton"

export PYTHONPATH="$root:$root/base:$root/slime:$root/lab" TRITON_CACHE_DIR="$work/triton"
for dtype in bf16 fp32; do
  "$env_dir/bin/python" -m claw_lab.long.triton_kernels $dtype
done
TRITON_INTERPRET=1 "$env_dir/bin/python" -m claw_lab.long.triton_kernels.numerics
