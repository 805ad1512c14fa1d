#!/usr/bin/env bash
# What action.yml runs: install gpuready beside the job's own environment, check once for people and once for SARIF.
# Isolated mode (-I): the current folder is the checkout, where a pull request may have put a json.py.
set -uo pipefail

venv="${RUNNER_TEMP:-/tmp}/gpuready"
install() { env -u PYTHONPATH -u PYTHONHOME "$venv/bin/python" -I -m pip install --quiet --disable-pip-version-check "$@"; }
gpuready=("${GPUREADY_COMMAND:-}")
if [ -z "${GPUREADY_COMMAND:-}" ]; then
  env -u PYTHONPATH -u PYTHONHOME python3 -I -m venv "$venv" || exit 2
  # Its dependencies and hatchling by hash; then this repository, for which nothing more is fetched.
  install --require-hashes -r "$GPUREADY_ACTION/requirements/action.txt" || exit 2
  install --no-deps --no-build-isolation --no-index "$GPUREADY_ACTION" || exit 2
  gpuready=("$venv/bin/python" -I -m gpuready)
fi

read -r -a told <<<"${GPUREADY_FRAMEWORKS:-}"
for word in "${told[@]}"; do
  case $word in -*) echo "gpuready: frameworks has $word, which is no framework; use the inputs of the action" >&2; exit 2 ;; esac
done
[ -n "${GPUREADY_DOCKERFILE:-}" ] && told+=("--dockerfile=$GPUREADY_DOCKERFILE")
[ -n "${GPUREADY_ON:-}" ] && told+=("--on=$GPUREADY_ON")
[ -n "${GPUREADY_DRIVER:-}" ] && told+=("--driver=$GPUREADY_DRIVER")
[ -n "${GPUREADY_PYTHON:-}" ] && told+=("--python=$GPUREADY_PYTHON")
[ -n "${GPUREADY_WANTS:-}" ] && told+=("--wants=$GPUREADY_WANTS")
[ -n "${GPUREADY_CONTRACT:-}" ] && told+=("--contract=$GPUREADY_CONTRACT")
[ -n "${GPUREADY_CONFIG:-}" ] && told+=("--config=$GPUREADY_CONFIG")
[ "${GPUREADY_STRICT:-false}" = true ] && told+=(--strict)

# What a Dockerfile or a recording says is not a command for the runner, such as ::error::.
token="$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')"
echo "::stop-commands::$token"
"${gpuready[@]}" check "${told[@]}"
code=$?
sarif="${RUNNER_TEMP:-/tmp}/gpuready.sarif"
if [ "$code" -ne 2 ] && "${gpuready[@]}" check "${told[@]}" --format sarif >"$sarif"; [ -s "$sarif" ]; then
  echo "sarif=$sarif" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
echo "::$token::"
echo "exit=$code" >>"${GITHUB_OUTPUT:-/dev/null}"
[ "$code" -eq 2 ] && exit 2
[ "${GPUREADY_FAIL:-true}" = true ] && exit "$code"
exit 0
