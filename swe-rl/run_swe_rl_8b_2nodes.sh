#!/usr/bin/env bash
# RL of Qwen3-8B that repairs repositories, on two machines with 8 GPUs each (trainer 8, policy 8); run it on both.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SWE_BENCH_PATH=/shared/swe HF_CKPT=/shared/Qwen3-8B bash swe-rl/run_swe_rl_8b_2nodes.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl_8b_2nodes.sh   the plan and every argument; needs no GPU
# Variables and flags: swe-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl_8b_2nodes MODEL=Qwen3-8B
swe_defaults
default NNODES 2
default ACTOR_NODES 2
default ROLLOUT_GPUS 8
default MAX_TOKENS_PER_GPU 16384
default MEM_FRACTION_STATIC 0.6
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}")
run_gpu "$@"
