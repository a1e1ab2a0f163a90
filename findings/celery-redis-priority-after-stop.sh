#!/usr/bin/env bash
# Celery 5.2.6 with kombu 5.2.4 on Redis: a worker that is stopped with TERM puts the tasks that it
# holds, those with an ETA among them, back into their queue, but not into the list of their
# priority. So a task of priority 9 stands behind those without one after a deployment, although its
# message still says 9.
#
# Needs redis-server and apt-get of Debian 12, whose packages are unpacked and not installed. Run on
# 2026-11-29 with Redis 7.0.15 and Python 3.11; the output is below.
set -euo pipefail
work=$(mktemp -d)
port=$((20000 + RANDOM % 20000))
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
cd "$work"
apt-get download -qq python3-celery=5.2.6-5 python3-kombu=5.2.4-1 python3-{amqp,anyjson,async-timeout,billiard,click,click-didyoumean,click-plugins,click-repl,colorama,dateutil,deprecated,ephem,memcache,packaging,prompt-toolkit,redis,six,tz,vine,wcwidth,wrapt} 2>/dev/null
for package in *.deb; do dpkg-deb -x "$package" .; done
export PYTHONPATH=$work:$work/usr/lib/python3/dist-packages C_FORCE_ROOT=1
cat >tasks.py <<PY
from celery import Celery
app = Celery("tasks", broker="redis://127.0.0.1:$port/0")
@app.task(name="close")
def close(): pass
PY
redis-server --port "$port" --bind 127.0.0.1 --save '' >/dev/null &
until redis-cli -p "$port" ping >/dev/null 2>&1; do sleep 0.1; done
lists() { printf '%s: without priority %s, priority 9 %s, held by a worker %s\n' "$1" "$(redis-cli -p "$port" llen celery)" "$(redis-cli -p "$port" llen $'celery\x06\x169')" "$(redis-cli -p "$port" hlen unacked)"; }
/usr/bin/python3 -c 'from tasks import close; close.apply_async(countdown=3600, priority=9)'
lists pushed >seen
/usr/bin/python3 -m celery -A tasks worker -c 1 >/dev/null 2>&1 &
worker=$!
until [[ $(redis-cli -p "$port" hlen unacked) == 1 ]]; do sleep 0.1; done
sleep 2 # until the worker has its signal handlers
lists 'worker runs' >>seen
kill -TERM "$worker"
wait "$worker" || true
lists 'worker stopped' >>seen
redis-cli -p "$port" lindex celery 0 | grep -o '"priority": 9' >>seen
cat seen
diff seen - <<'TEXT'
pushed: without priority 0, priority 9 1, held by a worker 0
worker runs: without priority 0, priority 9 0, held by a worker 1
worker stopped: without priority 1, priority 9 0, held by a worker 0
"priority": 9
TEXT
