#!/usr/bin/env bash
# What action.yml runs: install gpuready beside the job's own environment, check once for people and once for SARIF.
set -uo pipefail

venv="${RUNNER_TEMP:-/tmp}/gpuready"
if [ -z "${GPUREADY_COMMAND:-}" ]; then
  python3 -m venv "$venv" && "$venv/bin/python" -m pip install --quiet "$GPUREADY_ACTION" || exit 2
  GPUREADY_COMMAND="$venv/bin/gpuready"
fi

read -r -a told <<<"${GPUREADY_FRAMEWORKS:-}"
[ -n "${GPUREADY_DOCKERFILE:-}" ] && told+=("--dockerfile=$GPUREADY_DOCKERFILE")
[ -n "${GPUREADY_ON:-}" ] && told+=("--on=$GPUREADY_ON")
[ -n "${GPUREADY_DRIVER:-}" ] && told+=("--driver=$GPUREADY_DRIVER")
[ -n "${GPUREADY_PYTHON:-}" ] && told+=("--python=$GPUREADY_PYTHON")
[ -n "${GPUREADY_WANTS:-}" ] && told+=("--wants=$GPUREADY_WANTS")
[ "${GPUREADY_STRICT:-false}" = true ] && told+=(--strict)

"$GPUREADY_COMMAND" check "${told[@]}"
code=$?
sarif="${RUNNER_TEMP:-/tmp}/gpuready.sarif"
if [ "$code" -ne 2 ] && "$GPUREADY_COMMAND" check "${told[@]}" --format sarif >"$sarif"; [ -s "$sarif" ]; then
  echo "sarif=$sarif" >>"${GITHUB_OUTPUT:-/dev/null}"
fi
echo "exit=$code" >>"${GITHUB_OUTPUT:-/dev/null}"
[ "$code" -eq 2 ] && exit 2
[ "${GPUREADY_FAIL:-true}" = true ] && exit "$code"
exit 0
