#!/usr/bin/env bash
# Binary RL and token-level distillation of any Qwen3 checkpoint (MODEL_PATH; unset, Qwen3-8B) on 8 GPUs (trainer 4, policy 2, judge 2).
#   SGLANG_API_KEY=... MODEL_PATH=/models/Qwen3-8B bash openclaw-combine/run_qwen3_7b_openclaw_combine.sh
#   DRY_RUN=1 bash openclaw-combine/run_qwen3_7b_openclaw_combine.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/one_node.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-combine/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_7b_openclaw_combine MODEL=Qwen3-8B
default PRM_M 1
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${COMBINE[@]}")
run_gpu "$@"
