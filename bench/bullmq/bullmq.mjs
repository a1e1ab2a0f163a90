// This program is the part of the bench that uses BullMQ. It pushes and handles in loops of its own, because a library for Node can
// only be called from Node. The bench, which is written in Go, starts it and exchanges lines of JSON with it (redis_bullmq.go).
//
//   node bullmq.mjs push HOST PORT          reads one request from each line and answers with one line; ends with its standard input
//   node bullmq.mjs consume HOST PORT SLOTS RECORDS   is a consumer as in consumer.go
//
// Bodies are base64 in the JSON of a job, because BullMQ keeps JSON and no bytes. Finished jobs are removed, because an ack of
// Punctual removes the message, too.
import { randomBytes } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Queue, Worker } from 'bullmq';

const queueName = 'bench';
const bodyBytes = 200;
const [verb, host, port, ...rest] = process.argv.slice(2);
const connection = { host, port: Number(port) };
const say = (value) => process.stdout.write(JSON.stringify(value) + '\n');

// cpu returns the CPU time of this process in nanoseconds.
const cpu = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) * 1000;
};

// Random bytes of which the bodies are cut.
const random = randomBytes(1 << 20);

// job returns what add and addBulk take for the letter with a number and a due time in ms. Its body is that of letter.body in
// redis_systems.go.
function job(seq, due) {
  const body = Buffer.alloc(bodyBytes);
  body.writeUInt32LE(seq, 0);
  body.writeBigUInt64LE(BigInt(due), 4);
  const from = Math.floor(Math.random() * (random.length - bodyBytes));
  random.copy(body, 12, from, from + bodyBytes - 12);
  const timestamp = Date.now();
  return { name: 'letter', data: { body: body.toString('base64') }, opts: { timestamp, delay: Math.max(0, due - timestamp), removeOnComplete: true } };
}

const farDue = () => Date.now() + 3_600_000 + Math.floor(Math.random() * 86_400_000);

async function push(queue, letters) {
  const jobs = letters.map(([seq, due]) => job(seq, due));
  if (jobs.length === 1) {
    await queue.add(jobs[0].name, jobs[0].data, jobs[0].opts);
  } else {
    await queue.addBulk(jobs);
  }
}

// inParallel has n callers call f, each again and again until f returns false.
const inParallel = (n, f) => Promise.all(Array.from({ length: n }, async () => { while (await f()); }));

const requests = {
  push: async (queue, { letters }) => {
    await push(queue, letters);
    return {};
  },
  // flatOut pushes for some time, and answers how many letters it has pushed, how long that took, and the CPU time.
  flatOut: async (queue, { callers, batch, ms }) => {
    let items = 0;
    const began = performance.now(), used = cpu();
    await inParallel(callers, async () => {
      if (performance.now() - began >= ms) return false;
      const from = items;
      items += batch;
      await push(queue, Array.from({ length: batch }, (_, i) => [from + i, farDue()]));
      return true;
    });
    return { items, took_ns: Math.round((performance.now() - began) * 1e6), cpu_ns: cpu() - used };
  },
  // fill pushes letters for one instant.
  fill: async (queue, { n, due, callers, batch }) => {
    let next = 0;
    await inParallel(callers, async () => {
      const from = next;
      if (from >= n) return false;
      next += batch;
      await push(queue, Array.from({ length: Math.min(batch, n - from) }, (_, i) => [from + i, due]));
      return true;
    });
    return {};
  },
  // evenly pushes letters one by one at a rate, each lead_ms before it is due, and answers how many were stored only after
  // they were due.
  evenly: async (queue, { n, rate, callers, lead_ms }) => {
    let next = 0, overdue = 0;
    const began = Date.now();
    await inParallel(callers, async () => {
      if (next >= n) return false;
      const seq = next++;
      const at = began + (seq * 1000) / rate;
      const wait = at - Date.now();
      if (wait > 0) await sleep(wait);
      const due = Math.ceil(at + lead_ms);
      await push(queue, [[seq, due]]);
      if (Date.now() > due) overdue++;
      return true;
    });
    return { overdue };
  },
  pending: async (queue) => {
    const counts = await queue.getJobCounts('waiting', 'active', 'delayed', 'prioritized', 'waiting-children', 'paused', 'failed', 'completed');
    return { pending: Object.values(counts).reduce((a, b) => a + b, 0) };
  },
};

async function serveRequests() {
  const queue = new Queue(queueName, { connection });
  await queue.waitUntilReady();
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const { do: what, ...args } = JSON.parse(line);
    say(await requests[what](queue, args));
  }
  await queue.close();
}

async function consume(slots, path) {
  const records = [];
  let told = 0;
  const worker = new Worker(queueName, async ({ data }) => {
    const now = Date.now(); // rounded down to whole ms; due times are whole ms, so a job that comes early is seen as early
    const body = Buffer.from(data.body, 'base64');
    records.push([body.readUInt32LE(0), Number(body.readBigUInt64LE(4)), now, body.length]);
  }, { connection, concurrency: Number(slots) });
  worker.on('error', (err) => console.error('BullMQ:', err.message));
  await worker.waitUntilReady();
  const began = cpu();
  say({ ready: true });
  const telling = setInterval(() => {
    if (records.length > told) say({ handled: (told = records.length) });
  }, 20);
  process.stdin.resume();
  await new Promise((resolve) => process.stdin.on('end', resolve));
  clearInterval(telling);
  await worker.close();
  const used = cpu() - began;
  writeFileSync(path, records.map((r) => JSON.stringify(r) + '\n').join(''));
  say({ done: true, cpu: used });
}

if (verb === 'push') await serveRequests();
else if (verb === 'consume') await consume(...rest);
else throw new Error(`bullmq.mjs: ${verb} is not a verb: use push or consume`);
process.exit(0);
