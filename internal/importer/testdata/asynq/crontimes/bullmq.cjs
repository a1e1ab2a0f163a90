// Reads lines of a zone, a start and an expression, and adds the times by the function with which
// BullMQ finds the next one. Expressions that it refuses are left out.
const { getNextMillis } = require('bullmq/dist/cjs/classes/job-scheduler.js');

for (const line of require('fs').readFileSync(0, 'utf8').trim().split('\n')) {
  const [tz, start, pattern] = line.split('\t');
  const times = [];
  let at = start * 1000;
  try {
    while (times.length < 8) {
      at = getNextMillis(at, { pattern, tz });
      if (at === undefined) break;
      times.push(at / 1000 - start);
    }
  } catch {
    continue;
  }
  console.log([tz, start, pattern, times.join(' ')].join('\t'));
}
