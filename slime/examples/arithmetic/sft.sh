#!/usr/bin/env bash
# Supervised fine-tuning on the CPU: makes the tiny model and teaches it sums from answers of which a quarter is wrong.
#   bash slime/examples/arithmetic/sft.sh [any flag of slime/train.py]
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

[ -f "$RUN_DIR/model/config.json" ] || "$PY" "$HERE/make.py" "$RUN_DIR"
train train.py sft \
  --hf-checkpoint "$RUN_DIR/model" \
  --prompt-data "$RUN_DIR/conversations.jsonl" --input-key messages --rollout-shuffle \
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout \
  --loss-type sft_loss --debug-train-only \
  --num-rollout 320 --rollout-batch-size 64 --save-interval 80 \
  --lr 5e-3 --lr-decay-style linear --lr-warmup-iters 20 --min-lr 5e-4 "$@"
echo "the model is in $RUN_DIR/sft/checkpoints/checkpoint-latest"
