# shellcheck shell=bash
# Flags of the GUI track, as arrays for the scripts that source this.
# shellcheck disable=SC2034  # a script uses some of the arrays and variables

GUI=(
  --custom-generate-function-path gui_rl.generate.generate --service-path gui_rl.generate.start
  --input-key prompt --metadata-key metadata --rollout-shuffle --eval-reward-key acc
)
GUI_RL=(
  --num-rollout 2000 --n-samples-per-prompt 8 --num-steps-per-rollout 2 --save-interval 20
  --n-samples-per-eval-prompt 1 --eval-temperature 0 --lr 1e-6 --adam-beta2 0.95 --eps-clip-high 0.2
)

# gui_environment: refuses what is not this track.
gui_environment() {
  case ${ENV_TYPE:-gui} in gui) ;; *) die "ENV_TYPE=$ENV_TYPE: this script trains at screens; unset it, or give gui" ;; esac
}

# gui_defaults: what all scripts on GPUs share. Without GUI_TEST_CONFIG_BASE_DIR they train on the tasks of this folder; with it,
# on the rows that PROMPT_DATA names, which python -m gui_rl.convert makes.
gui_defaults() {
  gui_environment
  SERVES=0 EXAMPLE_DATA=$ROOT/gui-rl/data/train.jsonl
  if [ -z "${GUI_TEST_CONFIG_BASE_DIR:-}" ]; then
    default PROMPT_DATA "$ROOT/gui-rl/data/train.jsonl"
    default EVAL_DATA "$ROOT/gui-rl/data/heldout.jsonl"
  fi
  default GUI_TEST_CONFIG_BASE_DIR "$ROOT/gui-rl/tasks"
  default SCREENSHOT_BACKEND playwright
  default PARALLEL_ENVS 32
  default GUI_MAX_STEPS 30
  default EVAL_INTERVAL 20
  default MEM_FRACTION_STATIC 0.85
  default TP 1
  default CONTEXT_LENGTH 32768
}
