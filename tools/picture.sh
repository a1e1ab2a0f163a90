#!/usr/bin/env bash
# Draws the demo's picture for the README: the last frame of a recorded terminal. Needs asciinema and npx.
set -euo pipefail
cd "$(dirname "$0")/.."
asciinema rec --overwrite -q --cols 104 --rows 36 -c 'bin/punctual demo' bin/demo.cast </dev/null
npx --yes svg-term-cli@2.1.1 --window --in bin/demo.cast --out docs/img/demo.svg --at "$(tail -n 1 bin/demo.cast | awk -F '[[,]' '{ print int($2 * 1000) + 1000 }')"
