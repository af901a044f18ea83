# shellcheck shell=bash
# Flags of the tool-call track, as arrays for the scripts that source this.
# shellcheck disable=SC2034  # a script uses some of the arrays and variables

TOOLCALL=(
  --custom-generate-function-path toolcall_rl.generate.generate --service-path toolcall_rl.generate.start
  --input-key prompt --label-key label --metadata-key metadata --rollout-shuffle
  --eval-reward-key acc --advantage-estimator grpo
)
RETOOL_RL=(
  --num-rollout 3000 --rollout-batch-size 32 --n-samples-per-prompt 8 --num-steps-per-rollout 2
  --n-samples-per-eval-prompt 16 --eval-max-response-len 16384 --eval-max-context-len 32768
  --use-kl-loss --kl-loss-coef 0.01 --kl-loss-type k3 --lr 1e-6
)
RETOOL_SFT=(
  --rollout-function-path slime.rollout.sft_rollout.generate_rollout --loss-type sft_loss --calculate-per-token-loss
  --debug-train-only --input-key messages --tool-key tools --rollout-shuffle
  --num-rollout 50 --rollout-batch-size 128 # three times ReTool's 2,000 conversations
  --save-interval 1000
  --lr 1e-5 --lr-decay-style cosine --lr-warmup-fraction 0.1 --min-lr 1e-6 --adam-beta2 0.95
)

# retool_defaults: what all scripts on GPUs share.
retool_defaults() {
  SERVES=0 EXAMPLE_DATA=$ROOT/toolcall-rl/examples/problems.jsonl
  default PRM_GPUS 0
  default MEM_FRACTION_STATIC 0.6
}
