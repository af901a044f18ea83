#!/usr/bin/env bash
# The hybrid of Qwen3-4B by LoRA on one GPU with 80 GB: policy and trainer share it, rules judge.
#   HOST=127.0.0.1 HF_CKPT=/models/Qwen3-4B-Thinking-2507 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select_1gpu_80gb.sh
#   DRY_RUN=1 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select_1gpu_80gb.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/single_gpu.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-combine/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_4b_openclaw_topk_select_1gpu_80gb MODEL=Qwen3-4B-Thinking-2507
one_large_gpu_defaults
topk_select_defaults
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOPK_SELECT[@]}" "${DREAMS[@]}" --use-lora --lora-rank 32 --lora-alpha 64)
run_gpu "$@"
