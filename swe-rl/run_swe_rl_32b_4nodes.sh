#!/usr/bin/env bash
# RL of Qwen3-32B that repairs repositories, on four machines with 8 GPUs each (trainer 16, policy 16); run it on all.
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 RUN_DIR=/shared/run SWE_BENCH_PATH=/shared/swe HF_CKPT=/shared/Qwen3-32B bash swe-rl/run_swe_rl_32b_4nodes.sh
#   DRY_RUN=1 bash swe-rl/run_swe_rl_32b_4nodes.sh   the plan and every argument; needs no GPU
# Variables and flags: swe-rl/README.md, python slime/train_async.py --help.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/gpu.sh
source "$ROOT/launch/gpu.sh"
# shellcheck source=flags.sh
source "$ROOT/swe-rl/flags.sh"

# shellcheck disable=SC2034  # read by run_gpu
USAGE=${BASH_SOURCE[0]} RUN_NAME=swe_rl_32b_4nodes MODEL=Qwen3-32B
swe_defaults
default NNODES 4
default ACTOR_NODES 2
default ACTOR_GPUS 8
default ROLLOUT_GPUS 16
default TP 4
default MAX_TOKENS_PER_GPU 8192
default LOG_PROBS_CHUNK_SIZE 512
default MEM_FRACTION_STATIC 0.55
# shellcheck disable=SC2034  # read by run_gpu
METHOD=("${SWE[@]}" "${SWE_RL[@]}" --num-rollout 250 --rollout-batch-size 4)
run_gpu "$@"
