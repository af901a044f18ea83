#!/usr/bin/env bash
# Binary RL by LoRA of any Qwen3 checkpoint (MODEL_PATH; unset, Qwen3-8B) on 4 GPUs (trainer 2, policy 1, judge 1).
#   SGLANG_API_KEY=... MODEL_PATH=/models/Qwen3-8B bash openclaw-rl/run_qwen3_7b_lora_openclaw_rl.sh
#   DRY_RUN=1 bash openclaw-rl/run_qwen3_7b_lora_openclaw_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/one_node.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_7b_lora_openclaw_rl MODEL=Qwen3-8B
lora_defaults
default PRM_M 3
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${BINARY_RL[@]}" --use-lora --lora-rank 64 --lora-alpha 128)
run_gpu "$@"
