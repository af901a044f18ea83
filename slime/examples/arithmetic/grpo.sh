#!/usr/bin/env bash
# GRPO on the CPU: takes the model of sft.sh which answers a good half of the sums right, to more than nine in ten, in minutes.
#   bash slime/examples/arithmetic/grpo.sh [any flag of slime/train_async.py]
# PROGRAM=train.py trains in turns instead. Started again, it goes on from its last checkpoint.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

MODEL_PATH=${MODEL_PATH:-$RUN_DIR/sft/checkpoints/checkpoint-latest}
[ -f "$MODEL_PATH/config.json" ] || bash "$HERE/sft.sh"
reward=(--rm-type math)
[ "${RM:-rule}" = rule ] || reward=() # a --custom-rm-path follows
train "${PROGRAM:-train_async.py}" "${NAME:-grpo}" \
  --hf-checkpoint "$MODEL_PATH" \
  --prompt-data "$RUN_DIR/prompts.jsonl" --input-key prompt --label-key label --apply-chat-template --rollout-shuffle \
  "${reward[@]}" --rollout-max-response-len 6 \
  --num-rollout 120 --rollout-batch-size 48 --n-samples-per-prompt 8 --num-steps-per-rollout 3 --adam-beta2 0.98 \
  --lr 7e-4 --lr-warmup-iters 10 --lr-decay-style linear --lr-decay-iters 360 --min-lr 1e-4 \
  --eval-interval 20 --eval-prompt-data sums "$RUN_DIR/prompts.jsonl" \
  --save-interval 20 "$@"
