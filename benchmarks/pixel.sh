#!/usr/bin/env bash
# Clone, evaluate, train and evaluate the pixel policy on this machine's GPU, and leave everything but pictures and
# weights in a folder:   benchmarks/pixel.sh FOLDER [--section.key value ...]
# Whatever happens to the run, the folder holds what it had come to, at most twenty seconds old. CONFIG and PYTHON name
# another configuration and interpreter, ROOT a folder in which the whole run is left.
set -u
out=${1:?usage: benchmarks/pixel.sh FOLDER [--section.key value ...]}
shift
home=$(cd "$(dirname "$0")/.." && pwd)
root=${ROOT:-$(mktemp -d)}
mkdir -p "$out"
export PYTHONPATH="$home/src${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1

collect() {
    local run
    run=$(find "$root" -maxdepth 2 -name config.toml -printf '%h\n' | head -n 1)
    [ -n "$run" ] || return 0
    cp "$run/summary.json" "$out/" 2>/dev/null
    tar -C "$run" --exclude=experience --exclude=weights --exclude=checkpoints -czf "$out/run.tar.gz.new" . 2>/dev/null
    mv "$out/run.tar.gz.new" "$out/run.tar.gz"
}

trap 'kill "$collecting" 2>/dev/null; collect; [ -n "${ROOT:-}" ] || rm -rf "$root"' EXIT
(while sleep 20; do collect; done) &
collecting=$!
"${PYTHON:-python3}" -m distrl train "${CONFIG:-$home/configs/pixel-h200.toml}" --run.root "$root" "$@" 2>&1 |
    tee "$out/console.txt"
exit "${PIPESTATUS[0]}"
