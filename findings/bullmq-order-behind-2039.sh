#!/usr/bin/env bash
# BullMQ 6.7.0 gives a delayed job the due time in milliseconds times 4096 as its score, and each
# further job of that millisecond one more, so that they run in the order in which they were added. A
# score is a double, which from September 2039 on (2^41 ms times 4096 is 2^53) no longer tells the
# next number apart. So jobs of one time get one score, and Redis sorts them by ID as text: twelve jobs
# for one instant come as 1 10 11 12 2 in place of 1 2 3.
#
# Needs node, npm and redis-server. Run on 2026-11-29 with node 20, BullMQ 6.7.0, ioredis 5.11.1 and Redis 7.0.15; seen:
#   2039-01-01: 1 2 3 4 5 6 7 8 9 10 11 12, scores 12
#   2200-01-01: 1 10 11 12 2 3 4 5 6 7 8 9, scores 1
set -euo pipefail
work=$(mktemp -d)
port=$((20000 + RANDOM % 20000))
redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no --dir "$work" >"$work/redis.log" &
trap 'kill %1; wait; rm -rf "$work"' EXIT
cd "$work"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund bullmq@6.7.0 ioredis@5.11.1
cat >show.js <<'JS'
const { Queue } = require('bullmq');
const Redis = require('ioredis');
async function show() {
  const redis = new Redis(Number(process.argv[2]));
  for (const day of ['2039-01-01', '2200-01-01']) {
    const queue = new Queue(day, { connection: { host: '127.0.0.1', port: Number(process.argv[2]) } });
    const due = Date.parse(day + 'T00:00:00Z');
    for (let i = 0; i < 12; i++) {
      const now = Date.now();
      await queue.add('x', {}, { timestamp: now, delay: due - now });
    }
    const ids = await redis.zrange(queue.toKey('delayed'), 0, -1);
    const scores = await redis.zrange(queue.toKey('delayed'), 0, -1, 'WITHSCORES');
    console.log(`${day}: ${ids.join(' ')}, scores ${new Set(scores.filter((_, i) => i % 2)).size}`);
    await queue.close();
  }
  redis.disconnect();
}
show();
JS
seen=$(node show.js "$port")
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - <<'TEXT'
2039-01-01: 1 2 3 4 5 6 7 8 9 10 11 12, scores 12
2200-01-01: 1 10 11 12 2 3 4 5 6 7 8 9, scores 1
TEXT
