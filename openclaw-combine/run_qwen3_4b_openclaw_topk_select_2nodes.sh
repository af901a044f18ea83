#!/usr/bin/env bash
# The hybrid of Qwen3-4B on two machines with 8 GPUs each (trainer 8, policy 4, judge 4); run it on both.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SGLANG_API_KEY=... HF_CKPT=/shared/Qwen3-4B-Thinking-2507 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh
#   DRY_RUN=1 bash openclaw-combine/run_qwen3_4b_openclaw_topk_select_2nodes.sh   the plan and every argument; needs no GPU
# Variables and flags: instructions/cluster.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-combine/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=qwen3_4b_openclaw_topk_select_2nodes MODEL=Qwen3-4B-Thinking-2507
default NNODES 2
default ACTOR_GPUS 8
default ROLLOUT_GPUS 4
default PRM_GPUS 4
topk_select_defaults
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${TOPK_SELECT[@]}" "${DREAMS[@]}")
run_gpu "$@"
