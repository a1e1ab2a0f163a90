#!/usr/bin/env bash
# Takes pictures of all pages of the console into bin/console, and copies those that the documents show into docs/img/console.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/deps.sh browser
mkdir -p bin/console docs/img/console
(cd console/browsertest && PUNCTUAL_BROWSER=required go test -count=1 -run TestScreens . -args -store mem -screens "$OLDPWD/bin/console")
for name in now-light now-dark ahead-light week-light topics-light message-dark dead-light schedules-light; do
	cp "bin/console/$name.png" docs/img/console/
done
