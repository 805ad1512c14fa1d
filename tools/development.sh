#!/bin/sh
# Install the development environment into a venv: sh tools/development.sh PYTHON [only|no]
# The versions are those of requirements/test.txt, each file by its hash: uv does it in seconds; where it cannot, pip does, and says why not.
# Where they cannot be had (a newer Python, an index without them), whatever fits pyproject.toml is installed and a line says so; `only`
# stops instead, `no` does without the lock. A file that is not the one that was locked stops it always.
set -u
# A venv without pip gets that of the lock; until then the pip of $PYTHON, which made the venv, spares it seconds.
its="$1 -m pip"
if [ -n "${PYTHON:-}" ] && [ ! -x "${1%/*}/pip" ]; then
  its="$PYTHON -m pip --python $1"
  $its --version >/dev/null 2>&1 || { "$1" -m ensurepip >/dev/null; its="$1 -m pip"; }
fi
pip="$its --disable-pip-version-check install --quiet"

# The checkout itself, by the command that is given.
checkout() {
  "$@" --no-deps --no-build-isolation -e .
}

# pip brings the locked uv; the index is pip's, which uv does not ask by itself.
quickly() {
  sed -n '/^uv==/,/[^\\]$/p' requirements/test.txt >"$kept/uv.txt"
  $pip --require-hashes -r "$kept/uv.txt" || return 1
  index=${PIP_INDEX_URL:-$($its config get global.index-url 2>/dev/null)}
  [ -z "$index" ] || export UV_DEFAULT_INDEX="$index"
  export UV_SYSTEM_CERTS=true
  uv="$1 -m uv pip install --quiet --python $1"
  $uv --require-hashes -r requirements/test.txt && checkout $uv
}

slowly() {
  $pip --require-hashes -r requirements/test.txt && checkout $pip
}

if [ "${2:-}" != no ]; then
  kept=$(mktemp -d) || exit 1
  trap 'rm -rf "$kept"' EXIT
  if quickly "$1" >"$kept/uv" 2>&1 || slowly 2>"$kept/pip"; then
    echo 'installed by the lock: requirements/test.txt'
    exit 0
  fi
  cat "$kept/pip" >&2
  if grep -q 'DO NOT MATCH THE HASHES' "$kept/pip"; then
    echo 'STOPPED: a file is not the one that was locked (above); if you trust it: make test LOCKED=no' >&2
    exit 1
  fi
  echo 'NOT LOCKED: requirements/test.txt cannot be installed here (the reason is above)' >&2
  [ "${2:-}" = only ] && exit 1
fi
exec $pip -e '.[test]'
