#!/usr/bin/env bash
# Builds the clients of other languages into bin/clients: a wheel and a source distribution for Python, a package for npm. They have the
# version of the binary. Needs Python and TypeScript's compiler, and no network.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$(go run ./cmd/punctual version | awk '{ print $2 }')
version=${version#v}
[[ $version == [0-9]* ]] || version=0.0.0-dev.0 # not built from a release
out=$PWD/bin/clients
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rm -rf "$out"
mkdir -p "$out" "$work/package"
(cd clients/python && PUNCTUAL_VERSION=${version/-dev./.dev} python3 -B -c 'import sys, _build; print(_build.build_wheel(sys.argv[1]), _build.build_sdist(sys.argv[1]))' "$out")
tsc -p clients/typescript --outDir "$work/package/dist"
sed "s/\"version\": .*/\"version\": \"$version\",/" clients/typescript/package.json >"$work/package/package.json"
tar -C "$work" -czf "$out/punctual-$version.tgz" package
echo "punctual-$version.tgz, in bin/clients"
