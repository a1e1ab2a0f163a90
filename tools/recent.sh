#!/usr/bin/env bash
# Runs a command with PUNCTUAL_REDIS_SERVER naming valkey-server, which has WAITAOF, as class "replicated" needs. Where it is not
# installed the script says that this was not tested, and fails if asked to: recent.sh [--required] COMMAND...
set -euo pipefail
required=0
if [[ ${1-} == --required ]]; then required=1 && shift; fi
if command -v valkey-server >/dev/null; then
	PUNCTUAL_REDIS_SERVER=valkey-server exec env "$@"
fi
echo 'NOT TESTED: durability class "replicated" on Redis. It needs Redis or Valkey 7.2: install valkey-server, on Debian 12 from backports.' >&2
exit $required
