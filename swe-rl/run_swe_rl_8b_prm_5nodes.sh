#!/usr/bin/env bash
# RL of Qwen3-8B that repairs repositories, with a judge of each step, on five machines with 8 GPUs each (trainer 16, policy 16, judge 8); run it on all.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SWE_BENCH_PATH=/shared/swe HF_CKPT=/shared/Qwen3-8B bash swe-rl/run_swe_rl_8b_prm_5nodes.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl_8b_prm_5nodes.sh   the plan and every argument; needs no GPU
# Variables and flags: swe-rl/README.md, instructions/cluster.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl_8b_prm_5nodes MODEL=Qwen3-8B
default PRM_GPUS 8
default PRM_M 3
swe_defaults
default NNODES 5
default ACTOR_NODES 2
default ACTOR_GPUS 8
default ROLLOUT_GPUS 16
default MAX_TOKENS_PER_GPU 16384
default MEM_FRACTION_STATIC 0.6
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}" --advantage-estimator step_wise --prm-temperature 1.0 --prm-max-new-tokens 4096)
run_gpu "$@"
