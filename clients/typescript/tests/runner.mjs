// Carries out the steps of scenarios that a client has to do: commands come as lines of JSON on
// standard input, answers and events go as lines to standard output. See ../../scenarios/README.md.
// The first argument is the folder with what tsc has made of the client.

import { createInterface } from 'node:readline'

const { Client, Worker, Follow, Snooze, RetryAfter, Discard, PunctualError, message } = await import(process.argv[2] + '/node.js')

const say = line => process.stdout.write(JSON.stringify(line, shown) + '\n')
const shown = (_, v) => v instanceof PunctualError ? { code: v.code, definite: v.definite, detail: v.message, remedy: v.remedy } : v instanceof Error ? { detail: String(v) } : v
const codeOf = e => e === undefined ? '' : e instanceof PunctualError ? e.code : 'internal'
const camel = name => name.replace(/_([a-z])/g, (_, c) => c.toUpperCase())
const camelKeys = o => Object.fromEntries(Object.entries(o ?? {}).map(([k, v]) => [camel(k), v]))
const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

let client, worker
const gates = new Set()
const once = new Set()

const commands = {
  open ({ options: { urls, record, async: _, ...options } }) {
    if (options.retry_for) options.retry_for *= 1000
    client = new Client(urls, camelKeys(options))
    if (record) recordCalls(client.transport)
  },
  async call ({ call, args, options }) {
    const result = client[camel(call)](...(args ?? []), ...(options ? [camelKeys(options)] : []))
    if (result[Symbol.asyncIterator]) {
      const all = []
      for await (const item of result) all.push(item)
      return all
    }
    const value = await result
    return value?.result ? { ...value, outcome: value.result } : value
  },
  push_many: ({ args }) => client.pushMany(args.map(messageOf)),
  async work ({ options: { topics, ...options } }) {
    worker = new Worker(client, { ...camelKeys(options), observer: observe, log: line => console.error(line) })
    for (const { topic, async: _, ...o } of topics) worker.handle(topic, handle, o)
    await worker.start()
  },
  stop: ({ options }) => worker.stop(options?.timeout === undefined ? undefined : options.timeout * 1000),
  gate ({ args }) { for (const id of args) gates.add(id) }
}

function messageOf ({ topic, body, ...o }) { return message(topic, body, camelKeys(o)) }

// recordCalls tells of each call and its answer, for the ledger.
function recordCalls (transport) {
  const call = transport.call.bind(transport)
  let n = 0
  transport.call = async (method, path, body, o = {}) => {
    const wanted = method === 'POST' && ['/v1/push', '/v1/claim', '/v1/settle', '/v1/amend'].includes(path) && !o.notAfter && o.retryFor !== 3000 // the last two release what a claim that was ended had leased
    if (!wanted) return await call(method, path, body, o)
    const k = ++n
    say({ line: 'call', k, path, request: body, at: Date.now() })
    try {
      const answer = await call(method, path, body, o)
      say({ line: 'answer', k, answer: answer.body ?? {}, doubt: answer.doubt, at: Date.now() })
      return answer
    } catch (error) {
      say({ line: 'answer', k, error, at: Date.now() })
      throw error
    }
  }
}

function observe ({ event, message: m, error, verb = '' }) {
  if (!m) return say({ event, code: codeOf(error), detail: String(error) })
  say({ event, topic: m.topic, id: m.id, attempt: m.attempt, token: m.token, life: m.headers.name ?? '', until: m.raw.lease_until, verb, code: codeOf(error), at: Date.now() })
}

async function handle (m) {
  let plan = JSON.parse(m.headers.plan ?? '{}')
  plan = plan[m.attempt] ?? plan['*'] ?? plan
  const wanted = () => plan.deaf || !m.signal.aborted
  for (const until = performance.now() + (plan.sleep ?? 0) * 1000; performance.now() < until && wanted();) await sleep(2)
  while (plan.gate && !gates.has(m.id) && wanted()) await sleep(2)
  if (!wanted()) {
    say({ event: 'told', topic: m.topic, id: m.id, attempt: m.attempt, code: codeOf(m.signal.reason) })
    throw m.signal.reason
  }
  const then = (plan.then ?? []).map(messageOf)
  let how = plan.end ?? 'ack'
  if (plan.once && !once.has(m.id)) {
    once.add(m.id)
    how = plan.once
  }
  switch (how) {
    case 'fail': throw new Error('as planned')
    case 'retry': throw new RetryAfter(plan.delay, 'as planned')
    case 'snooze': throw new Snooze(plan.delay, then)
    case 'discard': throw new Discard('as planned', then)
  }
  return then.length ? new Follow(...then) : undefined
}

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line)
  const answer = (async () => commands[command.do](command))().then(
    value => say({ n: command.n, value }),
    e => say({ n: command.n, error: { code: codeOf(e), definite: e.definite ?? false, detail: e.message } }))
  if (command.do === 'open') await answer // the calls after it need it
}
