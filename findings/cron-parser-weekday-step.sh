#!/usr/bin/env bash
# cron-parser 5.10.3, with which BullMQ 6.7.0 reads its patterns: a step in the weekdays that begins at
# one number, N/step, goes on to 7, and 7 is Sunday again. So "0 9 * * 1/3" is Monday, Thursday and
# Sunday, "0 9 * * 5/2" Friday and Sunday. In cron (as 1-6/3) and in robfig/cron the week ends with 6,
# so that neither has the Sunday. Whoever moves such a pattern loses a day, or gains one.
#
# Needs node and npm. Run on 2026-11-29 with node 20 and cron-parser 5.10.3; seen:
#   0 9 * * 1/3: Sun Mon Thu
#   0 9 * * 1-6/3: Mon Thu
#   0 9 * * 5/2: Sun Fri
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm init -y >/dev/null
npm install --silent --no-audit --no-fund cron-parser@5.10.3
cat >show.js <<'JS'
const { CronExpressionParser } = require('cron-parser');
const names = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
for (const pattern of ['0 9 * * 1/3', '0 9 * * 1-6/3', '0 9 * * 5/2']) {
  const times = CronExpressionParser.parse(pattern, { currentDate: '2027-01-03T00:00:00Z', tz: 'UTC' });
  const days = new Set();
  for (let i = 0; i < 14; i++) days.add(times.next().toDate().getUTCDay());
  console.log(`${pattern}: ${[...days].sort().map((d) => names[d]).join(' ')}`);
}
JS
seen=$(node show.js)
printf '%s\n' "$seen"
diff <(printf '%s\n' "$seen") - <<'TEXT'
0 9 * * 1/3: Sun Mon Thu
0 9 * * 1-6/3: Mon Thu
0 9 * * 5/2: Sun Fri
TEXT
