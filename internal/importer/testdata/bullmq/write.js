// Writes, into the empty Redis on the port that is the first argument, the jobs of which
// ../bullmq-6.7.0.ndjson and ../bull-4.16.5.ndjson have the keys: one JSON object for each, values
// of hashes in base64. Left out are streams, markers, counters of priorities, and stack traces.
const { Queue, FlowProducer, Worker } = require('bullmq');
const Bull = require('bull');

const connection = { host: '127.0.0.1', port: Number(process.argv[2]) };
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

async function write() {
  const mail = new Queue('mail', { connection });
  await mail.add('welcome', { to: 'a' }, { delay: 3600000 });
  await mail.add('welcome', { to: 'b' }, { delay: 7200000, jobId: 'T-5', attempts: 5, backoff: { type: 'exponential', delay: 1000 } });
  await mail.add('now', { to: 'c' });
  await mail.add('now', { to: 'd' }, { lifo: true });
  await mail.add('prio', { to: 'e' }, { priority: 7, attempts: 3 });
  await mail.add('prio', { to: 'e2' }, { priority: 7, delay: 60000 });
  await mail.add('dedup', { x: 1 }, { delay: 60000, deduplication: { id: 'd1', ttl: 5000 } });
  await mail.upsertJobScheduler('every', { every: 60000 }, { name: 'tick', data: { t: 1 } });
  await new FlowProducer({ connection }).add({
    name: 'parent', queueName: 'mail', data: { p: 1 }, children: [{ name: 'kid', queueName: 'mail', data: { k: 1 } }],
  });

  const fail = new Queue('fail', { connection });
  await fail.add('boom', { a: 1 }, { attempts: 3, backoff: { type: 'fixed', delay: 100000 } });
  await fail.add('dead', { a: 2 });
  const worker = new Worker('fail', async (job) => { throw new Error('no ' + job.name); }, { connection });
  await pause(700);
  await worker.close();

  const held = new Queue('held', { connection });
  await held.pause();
  await held.add('x', { a: 1 });
  await held.add('y', { a: 1 }, { priority: 2 });

  const old = new Bull('old', { redis: connection });
  await old.add('oldname', { o: 1 }, { delay: 3600000, attempts: 4 });
  await old.add({ o: 2 }, { jobId: 'J-1' });
  await old.add({ o: 3 }, { priority: 3 });
  await pause(300);

  const oldFail = new Bull('oldfail', { redis: connection });
  oldFail.process(async () => { throw new Error('x'); });
  await oldFail.add({ z: 1 }, { attempts: 2, backoff: 100000 });
  await oldFail.add({ z: 2 });
  await pause(700);
}

write().then(() => process.exit(0));
