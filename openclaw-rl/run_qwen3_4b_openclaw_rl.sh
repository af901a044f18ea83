#!/usr/bin/env bash
# Binary RL of Qwen3-4B on 8 GPUs (trainer 4, policy 2, judge 2).
#   SGLANG_API_KEY=... HF_CKPT=/models/Qwen3-4B-Thinking-2507 bash openclaw-rl/run_qwen3_4b_openclaw_rl.sh
#   DRY_RUN=1 bash openclaw-rl/run_qwen3_4b_openclaw_rl.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/one_node.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_4b_openclaw_rl MODEL=Qwen3-4B-Thinking-2507
default PRM_M 3
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${BINARY_RL[@]}")
run_gpu "$@"
