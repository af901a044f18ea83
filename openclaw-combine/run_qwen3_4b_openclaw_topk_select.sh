#!/usr/bin/env bash
# The hybrid, Binary RL and top-K distillation from selected hints, of Qwen3-4B on 8 GPUs (trainer 4, policy 2, judge 2).
#   SGLANG_API_KEY=... HF_CKPT=/models/Qwen3-4B-Thinking-2507 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh
#   DRY_RUN=1 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/one_node.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-combine/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_4b_openclaw_topk_select MODEL=Qwen3-4B-Thinking-2507
topk_select_defaults
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOPK_SELECT[@]}" "${DREAMS[@]}")
run_gpu "$@"
