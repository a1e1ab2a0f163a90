import { errorOf, PunctualError } from './errors.js'
import { segment, Transport, longAgo, type Answer, type TransportOptions } from './transport.js'
import { durationText, instantText, local, millisOf, type Duration, type Instant } from './values.js'
import type {
  AmendItem, AmendResult, BulkReport, BulkRequest, Delivery as WireDelivery, Failure, Finished, Forecast, Info, Message, Occurrences, PushItem, PushResult,
  Schedule, ScheduleItem, Settings, SettingsPatch, SettleItem, SettleResult, Topic
} from './wire.js'

/** Bytes, a text, or any other value, of which the JSON is the body. */
export type Body = Uint8Array | string | object | number | boolean

export interface PushOptions {
  /** The ID of the message, by which it can be cancelled and is stored once. The server makes one up. */
  id?: string
  /** After what time the message is due. Without delay, at and atLocal it is due at once. */
  delay?: Duration
  at?: Instant
  /** When the message is due on the clocks of a zone, such as '2099-07-01 09:00'. */
  atLocal?: string
  zone?: string
  headers?: Record<string, string>
  /** Messages of a key take turns, where the topic is keyed. */
  key?: string
  ifExists?: 'keep' | 'replace' | 'replace-dead' | 'fail'
  ifDue?: Instant
  maxAttempts?: number
  /** After what time without a delivery the message is dead, or dropped with dropExpired. */
  expire?: Duration
  dropExpired?: boolean
  /** For how long after its end the ID of the message stays in use. */
  remember?: Duration
  /** How long the handler of the message may run. */
  timeout?: Duration
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

/** A message to push, alone or in a list, or to store as a follow-up. */
export function message (topic: string, body: Body = '', o: PushOptions = {}): PushItem {
  const m: PushItem = { topic }
  if (typeof body === 'string') m.body = body
  else if (body instanceof Uint8Array) {
    try {
      m.body = utf8.decode(body)
    } catch {
      m.body_base64 = btoa(Array.from(body, b => String.fromCharCode(b)).join(''))
    }
  } else m.body = JSON.stringify(body)
  if (o.delay !== undefined) m.in = durationText(o.delay)
  if (o.at !== undefined) m.at = instantText(o.at)
  if (o.atLocal) m.at_local = o.atLocal
  if (o.zone) m.zone = o.zone
  if (o.id) m.id = o.id
  if (o.headers) m.headers = o.headers
  if (o.key) m.key = o.key
  if (o.ifExists) m.if_exists = o.ifExists
  if (o.ifDue !== undefined) m.if_due = instantText(o.ifDue)
  if (o.maxAttempts) m.max_attempts = o.maxAttempts
  if (o.expire !== undefined) m.expire = durationText(o.expire, 'expire')
  if (o.dropExpired) m.drop_expired = true
  if (o.remember !== undefined) m.remember = durationText(o.remember, 'remember')
  if (o.timeout !== undefined) m.timeout = durationText(o.timeout, 'timeout')
  return m
}

/** A message under a lease. */
export class Delivery {
  readonly topic: string
  readonly id: string
  /** Proves that this program holds the lease; as a number it grows with every claim of the message. */
  readonly token: string
  readonly attempt: number
  readonly key: string
  readonly headers: Record<string, string>
  readonly failures: Failure[]

  /** raw is the message as the server sent it. */
  constructor (readonly raw: WireDelivery) {
    this.topic = raw.topic
    this.id = raw.id
    this.token = raw.token
    this.attempt = raw.attempt
    this.key = raw.key ?? ''
    this.headers = raw.headers ?? {}
    this.failures = raw.failures ?? []
  }

  get body (): Uint8Array {
    return this.raw.body_base64 ? Uint8Array.from(atob(this.raw.body_base64), c => c.charCodeAt(0)) : new TextEncoder().encode(this.raw.body ?? '')
  }

  get text (): string { return this.raw.body_base64 ? utf8.decode(this.body) : this.raw.body ?? '' }
  json<T = unknown> (): T { return JSON.parse(this.text) as T }
  get due (): Date { return new Date(this.raw.due) }
  get firstDue (): Date { return new Date(this.raw.first_due) }
  get created (): Date { return new Date(this.raw.created) }
  get delivered (): Date { return new Date(this.raw.delivered) }
  /** When the lease ended as it was claimed. */
  get leaseUntil (): Date { return new Date(this.raw.lease_until) }
  /** By how many ms the message was claimed after it was due. */
  get late (): number { return this.raw.late_ms }
}

/** What became of a push or a change. */
export interface Outcome {
  id: string
  topic: string
  /** stored, duplicate (the first message is kept), replaced; cancelled, rescheduled, requeued, deleted; empty beside an error. */
  result: string
  due?: Date
  /** The state of a message that was there already. */
  existing?: string
  error?: PunctualError
}

function outcomeOf (r: PushResult & AmendResult): Outcome {
  const o: Outcome = { id: r.id ?? '', topic: r.topic ?? '', result: r.result ?? r.outcome ?? '' }
  if (r.due) o.due = new Date(r.due)
  if (r.existing) o.existing = r.existing
  if (r.error) o.error = errorOf(r.error)
  return o
}

export interface SettleOptions { delay?: Duration, at?: Instant, error?: string, then?: PushItem[] }

/** The end of a lease, or its extension. */
export function settlement (d: { topic: string, id: string, token: string }, verb: SettleItem['verb'], o: SettleOptions = {}): SettleItem {
  const s: SettleItem = { topic: d.topic, id: d.id, token: d.token, verb }
  if (o.delay !== undefined) s.in = durationText(o.delay)
  if (o.at !== undefined) s.at = instantText(o.at)
  if (o.error) s.error = o.error.slice(0, 300)
  if (o.then?.length) s.then = o.then
  return s
}

const maxItems = 1000
const maxChars = 4 << 20

/** Carries out items in batches, at most two at a time: while requests are under way the next items gather, and a lone item goes at once. */
export class Batcher<Item, Result> {
  private queue: Array<{ item: Item, size: number, resolve: (r: Result) => void, reject: (e: unknown) => void }> = []
  private flights = 0

  constructor (private readonly run: (items: Item[]) => Promise<Result[]>) {}

  async do (item: Item, size = 0): Promise<Result> {
    return await new Promise<Result>((resolve, reject) => {
      this.queue.push({ item, size, resolve, reject })
      if (this.flights < 2) {
        this.flights++
        queueMicrotask(() => { void this.fly() })
      }
    })
  }

  private async fly (): Promise<void> {
    while (this.queue.length > 0) {
      let n = 0
      for (let total = 0; n < Math.min(this.queue.length, maxItems) && (n === 0 || total + this.queue[n]!.size <= maxChars); n++) total += this.queue[n]!.size
      const batch = this.queue.splice(0, n)
      try {
        const results = await this.run(batch.map(w => w.item))
        batch.forEach((w, i) => { w.resolve(results[i]!) })
      } catch (e) {
        for (const w of batch) w.reject(e)
      }
    }
    this.flights--
  }
}

export interface ClaimOptions {
  max?: number
  /** How long to wait for a message, 55 s at most. */
  wait?: Duration
  lease?: Duration
  /** Ends the claim; what it may have leased is released. */
  signal?: AbortSignal
}

export interface ListOptions { reason?: string, from?: Instant, to?: Instant, descending?: boolean, bare?: boolean }

/** Calls one server, or several servers of the same store. */
export class Client {
  readonly transport: Transport
  private readonly pushes = new Map<string, Batcher<PushItem, Outcome>>()

  /** url is http://HOST:PORT or https://HOST:PORT, in Node also unix:PATH, or a list of these. */
  constructor (url: string | string[] = 'http://localhost:7878', options: TransportOptions = {}) {
    this.transport = new Transport(typeof url === 'string' ? [url] : url, options)
  }

  /** Ends the calls under way at their next answer. Stop workers first. */
  close (): void { this.transport.closed = true }

  // Pushes

  /** Stores a message. Pushes that overlap share requests. */
  async push (topic: string, body: Body = '', options: PushOptions = {}): Promise<Outcome> {
    let batcher = this.pushes.get(topic) // each topic has its own batches, so that a slow topic delays no other one
    if (!batcher) {
      if (this.pushes.size >= 1000) this.pushes.clear()
      this.pushes.set(topic, batcher = new Batcher(async items => await this.pushItems(items)))
    }
    const m = message(topic, body, options)
    const o = await batcher.do(m, sizeOf(m))
    if (o.error) throw o.error
    return o
  }

  /** Stores messages made by message(). Each result has an error of its own. Long lists are sent in parts; behind a part that fails nothing is sent. */
  async pushMany (messages: PushItem[]): Promise<Outcome[]> {
    return await inParts(messages, async items => await this.pushItems(items))
  }

  private async pushItems (items: PushItem[]): Promise<Outcome[]> {
    return results<PushResult>(await this.transport.call('POST', '/v1/push', { messages: items }, { again: 'keyed' }), items.length).map(outcomeOf as (r: PushResult) => Outcome)
  }

  // Changes by ID

  /** Cancels a message. not_found: there is none to deliver. leased: too late, and no further attempt follows. */
  async cancel (topic: string, id: string, o: { ifDue?: Instant } = {}): Promise<Outcome> { return await this.amend('cancel', topic, id, o) }

  /** Moves a message to another time. */
  async reschedule (topic: string, id: string, o: { delay?: Duration, at?: Instant, ifDue?: Instant }): Promise<Outcome> { return await this.amend('reschedule', topic, id, o) }

  /** Delivers a dead message again. */
  async requeue (topic: string, id: string, o: { delay?: Duration, at?: Instant } = {}): Promise<Outcome> { return await this.amend('requeue', topic, id, o) }

  /** Removes a message in any state without a trace. Needs the action admin. */
  async delete (topic: string, id: string, o: { ifDue?: Instant } = {}): Promise<Outcome> { return await this.amend('delete', topic, id, o) }

  private async amend (change: AmendItem['change'], topic: string, id: string, o: { delay?: Duration, at?: Instant, ifDue?: Instant }): Promise<Outcome> {
    const a: AmendItem = { change, topic, id }
    if (o.delay !== undefined) a.in = durationText(o.delay)
    if (o.at !== undefined) a.at = instantText(o.at)
    if (o.ifDue !== undefined) a.if_due = instantText(o.ifDue)
    const [outcome] = await this.amendMany([a])
    if (outcome!.error) throw outcome!.error
    return outcome!
  }

  /** Makes many changes. Each result has an error of its own. */
  async amendMany (changes: AmendItem[]): Promise<Outcome[]> {
    return await inParts(changes, async items => results<AmendResult>(
      await this.transport.call('POST', '/v1/amend', { amendments: items }, { again: 'keyed' }), items.length).map(outcomeOf as (r: AmendResult) => Outcome))
  }

  // Work without a Worker

  /** Leases up to max due messages. Settle each with settle. */
  async claim (topics: string[], o: ClaimOptions = {}): Promise<Delivery[]> {
    const body: Record<string, unknown> = { topics, max: o.max ?? 1, wait: durationText(o.wait ?? 0, 'wait') }
    if (o.lease !== undefined) body.lease = durationText(o.lease, 'lease')
    const key = this.transport.newKey()
    const sent = local()
    try {
      const answer = await this.transport.call('POST', '/v1/claim', body, { again: 'anew', wait: millisOf(body.wait as string) ?? 0, key, ...(o.signal && { signal: o.signal }) })
      const found: WireDelivery[] = answer.body?.messages ?? []
      if (found.length) this.transport.clock.observe(sent, local(), found.reduce((latest, d) => Math.max(latest, Date.parse(d.delivered)), 0))
      return found.map(d => new Delivery(d))
    } catch (e) {
      if (o.signal?.aborted) await this.abandon(body, key)
      throw e
    }
  }

  /** Asks for the answer to a claim that was ended, and releases the messages in it. */
  private async abandon (body: unknown, key: string): Promise<void> {
    try {
      const answer = await this.transport.call('POST', '/v1/claim', body, { again: 'keyed', key, notAfter: longAgo, retryFor: 3000, timeout: 3000 })
      const found: WireDelivery[] = answer.body?.messages ?? []
      if (found.length) await this.settle(found.map(d => settlement(d, 'release')), { retryFor: 3000, timeout: 3000 })
    } catch (e) {
      if (!(e instanceof PunctualError)) throw e // "deadline": the claim was never carried out. Otherwise its leases run out
    }
  }

  /** Ends or extends leases. Each result is undefined or an error. */
  async settle (settlements: SettleItem[], o: { retryFor?: number, timeout?: number } = {}): Promise<Array<PunctualError | undefined>> {
    const answer = await this.transport.call('POST', '/v1/settle', { settlements }, { again: 'anew', ...o })
    return results<SettleResult>(answer, settlements.length).map(r => {
      const error = r.error && errorOf(r.error)
      return answer.doubt && error?.code === 'lease_lost'
        ? new PunctualError('indeterminate', `the server that was told first has ended; now: ${error.detail}`, { cause: error })
        : error
    })
  }

  // Looking and steering

  private async read<T> (path: string, query: Record<string, unknown> = {}): Promise<T> {
    return (await this.transport.call('GET', path, undefined, { again: 'reading', query })).body as T
  }

  private async change<T> (method: string, path: string, body?: unknown, query: Record<string, unknown> = {}): Promise<T> {
    return (await this.transport.call(method, path, body, { query })).body as T
  }

  private async * pages<T> (path: string, member: string, query: Record<string, unknown> = {}): AsyncGenerator<T, void, undefined> {
    for (let after = ''; ;) {
      const page = await this.read<Record<string, unknown>>(path, { ...query, after })
      yield * (page[member] ?? []) as T[]
      after = (page.next ?? '') as string
      if (!after) return
    }
  }

  /** What the server says of itself: version, durability, abilities, limits. */
  async info (): Promise<Info> { return await this.read('/v1') }

  /** The store's clock, which decides. */
  async now (): Promise<Date> { return new Date((await this.read<{ now: string }>('/v1/clock')).now) }

  /** The topics with the counts of their messages. */
  async topics (): Promise<Topic[]> { return (await this.read<{ topics: Topic[] }>('/v1/topics')).topics }

  async stats (topic: string): Promise<Topic> { return await this.read(at(topic)) }

  /** A message in any state, as the server tells it. not_found: there is none. */
  async get (topic: string, id: string): Promise<Message> { return await this.read(at(topic, 'messages', id)) }

  /** The messages of a topic in a state, in the order of their due times. bare leaves out the bodies. */
  messages (topic: string, state: NonNullable<Message['state']>, o: ListOptions = {}): AsyncGenerator<Message, void, undefined> {
    return this.pages(at(topic, 'messages'), 'messages', { state, ...o })
  }

  /** The record of a finished message, where the topic has a finished_retention. */
  async finished (topic: string, id: string): Promise<Finished> { return await this.read(at(topic, 'finished', id)) }

  finishedMessages (topic: string, o: { outcome?: string, from?: Instant, to?: Instant, descending?: boolean } = {}): AsyncGenerator<Finished, void, undefined> {
    return this.pages(at(topic, 'finished'), 'records', o)
  }

  /** How many messages are due when. */
  async forecast (o: { topic?: string, step?: Duration, buckets?: number } = {}): Promise<Forecast> {
    return await this.read('/v1/forecast', { topic: o.topic, step: durationText(o.step ?? '1h'), buckets: o.buckets ?? 24 })
  }

  async settings (topic: string): Promise<Settings> { return await this.read(at(topic, 'settings')) }

  /** Changes settings; with "if" only while the topic has those settings. */
  async configure (topic: string, patch: SettingsPatch): Promise<Settings> { return await this.change('PATCH', at(topic, 'settings'), patch) }

  /** Holds deliveries back; with push it refuses pushes instead. */
  async pause (topic: string, o: { push?: boolean, delivery?: boolean } = {}): Promise<Settings> { return await this.change('POST', at(topic, 'pause'), undefined, o) }

  async resume (topic: string, o: { push?: boolean, delivery?: boolean } = {}): Promise<Settings> { return await this.change('POST', at(topic, 'resume'), undefined, o) }

  /** Removes the messages of a state: scheduled, ready, leased, dead, or live for all but the dead. */
  async purge (topic: string, state: string): Promise<number> { return (await this.change<{ purged: number }>('POST', at(topic, 'purge'), undefined, { state })).purged }

  async deleteTopic (topic: string): Promise<void> { await this.change('DELETE', at(topic)) }

  /** Changes all messages that match: does is cancel, delete, requeue, reschedule or shift. The members are those of docs/bulk.md. */
  async bulk (topic: string, does: string, members: Omit<BulkRequest, 'do'> = {}): Promise<BulkReport> {
    return await this.change('POST', at(topic, 'bulk'), { do: does, ...members })
  }

  // Schedules

  /** Stores a recurring message, such as { spec: '0 9 * * MON-FRI', zone: 'Europe/Berlin', body: 'report' }. */
  async putSchedule (topic: string, name: string, schedule: ScheduleItem): Promise<Schedule> {
    return (await this.transport.call('PUT', at(topic, 'schedules', name), schedule, { again: 'keyed' })).body as Schedule
  }

  async schedule (topic: string, name: string): Promise<Schedule> { return await this.read(at(topic, 'schedules', name)) }
  schedules (topic: string): AsyncGenerator<Schedule, void, undefined> { return this.pages(at(topic, 'schedules'), 'schedules') }
  async deleteSchedule (topic: string, name: string): Promise<void> { await this.change('DELETE', at(topic, 'schedules', name)) }
  async pauseSchedule (topic: string, name: string, note = ''): Promise<Schedule> { return await this.change('POST', at(topic, 'schedules', name, 'pause'), undefined, { note }) }

  async resumeSchedule (topic: string, name: string, o: { catchUp?: boolean } = {}): Promise<Schedule> {
    return await this.change('POST', at(topic, 'schedules', name, 'resume'), undefined, { catch_up: o.catchUp })
  }

  /** Stores an occurrence now, beside those of the schedule. */
  async runSchedule (topic: string, name: string): Promise<Occurrences> { return await this.change('POST', at(topic, 'schedules', name, 'run')) }
  async skipSchedule (topic: string, name: string, n = 1): Promise<Occurrences> { return await this.change('POST', at(topic, 'schedules', name, 'skip'), undefined, { n }) }

  async backfillSchedule (topic: string, name: string, from: Instant, to: Instant, o: { dryRun?: boolean } = {}): Promise<Occurrences> {
    return await this.change('POST', at(topic, 'schedules', name, 'backfill'), undefined, { from, to, dry_run: o.dryRun })
  }
}

function at (topic: string, ...rest: string[]): string {
  return '/v1/topics/' + [topic, ...rest].map(segment).join('/')
}

function sizeOf (m: PushItem): number { return (m.body?.length ?? 0) + (m.body_base64?.length ?? 0) }

function results<T> (answer: Answer, n: number): T[] {
  const found: T[] = answer.body?.results ?? []
  if (found.length !== n) throw new PunctualError('indeterminate', `the server answered ${found.length} results for ${n} items`)
  return found
}

async function inParts<T extends { id?: string, topic?: string }> (items: T[], run: (part: T[]) => Promise<Outcome[]>): Promise<Outcome[]> {
  const out: Outcome[] = []
  while (out.length < items.length) {
    let n = 0
    for (let total = 0; n < maxItems && out.length + n < items.length; n++) {
      total += sizeOf(items[out.length + n] as PushItem)
      if (n > 0 && total > maxChars) break
    }
    try {
      out.push(...await run(items.slice(out.length, out.length + n)))
    } catch (e) {
      if (out.length === 0 || !(e instanceof PunctualError)) throw e
      const unsent = new PunctualError('unreachable', 'not sent, since a part before was not answered')
      const failed = out.length + n
      for (let i = out.length; i < items.length; i++) out.push({ id: items[i]!.id ?? '', topic: items[i]!.topic ?? '', result: '', error: i < failed ? e : unsent })
    }
  }
  return out
}
