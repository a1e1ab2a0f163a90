// Runs handlers: claims messages when they are due, renews leases meanwhile, settles each message as
// its handler says. Each topic has slots, claims, renewals and settlements of its own (Lane), so that
// a slow topic delays no other one.

import { Batcher, Delivery, settlement, type Client, type SettleOptions } from './client.js'
import { isCode, PunctualError } from './errors.js'
import { segment } from './transport.js'
import { durationText, local, millisOf, passed, sleep, type Duration, type Instant, type Local } from './values.js'
import type { PushItem, SettleItem } from './wire.js'

const claimWait = 20_000
const tick = 1 // the resolution of the stores' clocks, in ms
const maxUnsettled = 4 // for each slot, so that handlers need not wait for the store

/** Returned by a handler: acks the message, and stores the next ones in the same step. */
export class Follow {
  readonly messages: PushItem[]
  constructor (...messages: PushItem[]) { this.messages = messages }
}

/** Thrown by a handler that decides what becomes of its message. Use one of the classes below. */
export class Decision extends Error {
  constructor (readonly verb: 'retry' | 'snooze' | 'discard', readonly options: SettleOptions) {
    super(options.error ?? verb)
    this.name = 'Decision'
  }
}

/** The message comes again after a time, or at an instant, and the attempt does not count. */
export class Snooze extends Decision {
  constructor (when: Duration | Date, then: PushItem[] = []) {
    super('snooze', when instanceof Date ? { at: when, then } : { delay: when, then })
  }
}

/** The message is retried after a time in place of the topic's backoff. */
export class RetryAfter extends Decision {
  constructor (delay: Duration, error: unknown = '') { super('retry', { delay, error: textOf(error) }) }
}

/** The message is dead at once, because no attempt would help. */
export class Discard extends Decision {
  constructor (error: unknown = '', then: PushItem[] = []) { super('discard', { error: textOf(error), then }) }
}

function textOf (e: unknown): string { return e instanceof Error ? `${e.name}: ${e.message}` : String(e) }

/** What a handler gets: a message, and a signal that ends when its work is not wanted any more. The signal's reason is a PunctualError: lease_lost, cancelled, deadline or closed. */
export class HandledMessage extends Delivery {
  private readonly controller = new AbortController()
  readonly signal = this.controller.signal
  /** @internal */
  end (reason: PunctualError): void { this.controller.abort(reason) }
}

export type Handler = (message: HandledMessage) => Promise<Follow | void> | Follow | void

export interface WorkerEvent { event: 'begin' | 'end' | 'settled' | 'lost' | 'error', topic: string, message?: HandledMessage, error?: unknown, verb?: SettleItem['verb'] }

export interface WorkerOptions {
  /** Overrides the length of the topics' leases, which are renewed at a third of it. */
  lease?: Duration
  /** How long a handler may run. Default 1 h; 0 for no limit. */
  timeout?: Duration
  /** How many ms run waits for handlers at its end. Default 25,000. */
  shutdownTimeout?: number
  /** Learns of what the worker does. */
  observer?: (e: WorkerEvent) => void
  /** Gets what goes wrong, as one line. Default console.warn. */
  log?: (line: string) => void
}

export interface HandleOptions {
  /** Handles the copies of this group of the topic. */
  group?: string
  /** How many messages of the topic are handled at once. Default 16. */
  slots?: number
  timeout?: Duration
}

/** A message in hand and the state of its lease. */
class Held {
  readonly message: HandledMessage
  readonly until: number
  readonly length: number
  renewAt: number
  endsAt: number
  readonly timeoutAt: number
  /** When the latest renewal that succeeded was sent. */
  renewed: Local | undefined
  renewing = false
  started = false
  returned = false
  lost = false
  unsure = false
  pause = 50 // before a settlement is tried again

  constructor (lane: Lane, d: Delivery, received: Local) {
    this.message = new HandledMessage(d.raw)
    this.until = Date.parse(d.raw.lease_until)
    this.length = this.until - Date.parse(d.raw.delivered)
    const left = Math.max(0, this.until - lane.client.transport.clock.latest(received))
    this.renewAt = received.monotonic + left / 3
    this.endsAt = received.monotonic + left
    const timeout = millisOf(d.raw.timeout) ?? lane.timeout
    this.timeoutAt = timeout > 0 ? received.monotonic + timeout : Infinity
  }
}

/** The answer to a settlement; alone says that the error is not that of the whole request. */
interface Settled { error: PunctualError | undefined, alone: boolean }

/** One topic: its slots, claims, renewals and settlements. */
class Lane {
  readonly held = new Set<Held>()
  running = 0
  unsettled = 0
  polling: Promise<void> = Promise.resolve()
  private timer: ReturnType<typeof setTimeout> | undefined
  private timerAt = Infinity
  private wake: () => void = () => {}
  private readonly settler: Batcher<SettleItem, Settled>

  constructor (readonly worker: Worker, readonly topic: string, readonly handler: Handler, readonly slots: number, readonly timeout: number) {
    this.settler = new Batcher(async (items): Promise<Settled[]> => {
      try {
        return (await this.client.settle(items)).map(error => ({ error, alone: true }))
      } catch (e) {
        const error = e instanceof PunctualError ? e : new PunctualError('internal', textOf(e))
        return items.map(() => ({ error, alone: false }))
      }
    })
  }

  get client (): Client { return this.worker.client }
  get stopping (): AbortSignal { return this.worker.stopping.signal }

  // Claims

  async poll (): Promise<void> {
    for (let pause = 0; !this.stopping.aborted;) {
      const free = Math.min(this.slots - this.running, maxUnsettled * this.slots - this.unsettled)
      if (free <= 0) {
        await this.changed()
        continue
      }
      let ds: Delivery[]
      try {
        const lease = this.worker.options.lease
        ds = await this.client.claim([this.topic], { max: free, wait: claimWait, signal: this.stopping, ...(lease !== undefined && { lease }) })
        pause = 0
      } catch (e) {
        if (this.stopping.aborted) return
        pause = Math.max(Math.min(5000, Math.max(100, 2 * pause)) * (0.5 + Math.random()), e instanceof PunctualError ? e.retryAfter : 0)
        this.tell({ event: 'error', topic: this.topic, error: e })
        await sleep(pause, this.stopping)
        continue
      }
      const received = local()
      for (const d of ds) {
        const h = new Held(this, d, received)
        this.held.add(h)
        this.keepBy(Math.min(h.renewAt, h.timeoutAt))
        this.running++
        void this.handle(h)
      }
    }
  }

  private async changed (): Promise<void> {
    await new Promise<void>(resolve => { this.wake = resolve })
  }

  wakeUp (): void { this.wake() }

  // Handlers

  private async handle (h: Held): Promise<void> {
    try {
      if (this.doubtful(h) || this.stopping.aborted ? !await this.mayStart(h) : h.lost) return
      h.started = true
      this.tell({ event: 'begin', topic: this.topic, message: h.message })
      let item: SettleItem
      try {
        const result = await this.handler(h.message)
        h.returned = true
        this.tell({ event: 'end', topic: this.topic, message: h.message })
        item = settlement(h.message, 'ack', { then: result instanceof Follow ? result.messages : [] })
      } catch (e) {
        h.returned = true
        this.tell({ event: 'end', topic: this.topic, message: h.message, error: e })
        item = this.decided(h, e)
      }
      if (h.lost) this.drop(h)
      else void this.settle(h, item)
    } finally {
      this.running--
      this.wake()
    }
  }

  private decided (h: Held, e: unknown): SettleItem {
    try {
      if (e instanceof Decision) return settlement(h.message, e.verb, e.options)
    } catch (malformed) {
      e = malformed
    }
    const reason: unknown = h.message.signal.reason
    if (isCode(reason, 'closed')) return settlement(h.message, 'release')
    if ((e as { name?: string } | undefined)?.name === 'AbortError' && reason !== undefined) e = reason
    this.worker.log(`${this.topic}/${h.message.id}, attempt ${h.message.attempt}: attempt failed: ${textOf(e)}`)
    return settlement(h.message, 'retry', { error: textOf(e) })
  }

  private doubtful (h: Held): boolean {
    const now = local()
    if (h.renewed) return passed(h.renewed, now) >= h.length * 0.999 - tick
    return this.client.transport.clock.latest(now) >= h.until
  }

  /** Makes sure that the lease still holds. Otherwise it gives the message back. */
  private async mayStart (h: Held): Promise<boolean> {
    if (this.stopping.aborted) return this.giveBack(h)
    const sent = local()
    let error: unknown
    try {
      const limit = Math.min(h.length, 10_000)
      error = (await this.client.settle([settlement(h.message, 'extend', { delay: h.length })], { retryFor: limit, timeout: limit }))[0]
    } catch (e) {
      error = e
    }
    if (!error) this.prolong(h, sent)
    if (!error && this.stopping.aborted) return this.giveBack(h)
    if (!error && !this.doubtful(h)) return !h.lost
    this.tell({ event: 'lost', topic: this.topic, message: h.message, error: error ?? new PunctualError('lease_lost', 'the lease was renewed, and the answer came too late') })
    if (!isCode(error, 'lease_lost')) return this.giveBack(h)
    this.drop(h)
    return false
  }

  private giveBack (h: Held): false {
    void this.settle(h, settlement(h.message, 'release'))
    return false
  }

  // Leases

  /** Has keep called at a time of the monotonic clock, or before. */
  private keepBy (at: number): void {
    if (at >= this.timerAt || at === Infinity) return
    clearTimeout(this.timer)
    this.timerAt = at
    this.timer = setTimeout(() => { this.keep() }, Math.min(Math.max(1, at - performance.now()), 2 ** 31 - 1))
  }

  /** Ends handlers whose time or lease is over, and renews leases at a third of their length. */
  private keep (): void {
    this.timerAt = Infinity
    const now = performance.now()
    const due: Held[] = []
    let next = Infinity
    for (const h of this.held) {
      const { signal } = h.message
      if (!signal.aborted && !h.returned && now >= h.timeoutAt) this.end(h, new PunctualError('deadline', 'the time of the handler is over', { definite: true }))
      else if (!signal.aborted && h.started && !h.returned && now >= h.endsAt) this.end(h, new PunctualError('lease_lost', 'the lease ended before it was renewed'))
      if (!h.renewing && !h.lost && !isCode(signal.reason, 'deadline') && now >= h.renewAt && now < h.endsAt) {
        h.renewing = true
        due.push(h)
      }
      for (const at of [h.returned ? Infinity : h.timeoutAt, h.renewing ? Infinity : h.renewAt, h.endsAt]) if (at > now) next = Math.min(next, at)
    }
    if (due.length) void this.renew(due)
    this.keepBy(next)
  }

  private async renew (hs: Held[]): Promise<void> {
    const sent = local()
    const left = Math.max(100, hs.reduce((least, h) => Math.min(least, h.endsAt), Infinity) - sent.monotonic)
    let errors: unknown[]
    try {
      errors = await this.client.settle(hs.map(h => settlement(h.message, 'extend', { delay: h.length })), { retryFor: left / 3, timeout: Math.max(200, left / 3) })
    } catch (e) {
      errors = hs.map(() => e)
    }
    hs.forEach((h, i) => {
      const error = errors[i]
      if (!error) return this.prolong(h, sent)
      const now = performance.now()
      h.renewing = false
      h.renewAt = now + Math.max(50, (h.endsAt - now) / 4)
      this.keepBy(Math.min(h.renewAt, h.endsAt))
      if (h.returned) return
      h.lost ||= isCode(error, 'lease_lost')
      if (isCode(error, 'lease_lost', 'cancelled')) this.end(h, error)
      else this.tell({ event: 'error', topic: this.topic, message: h.message, error })
    })
  }

  private prolong (h: Held, sent: Local): void {
    h.renewing = false
    if (!h.renewed || sent.monotonic > h.renewed.monotonic) {
      h.renewed = sent
      h.renewAt = sent.monotonic + h.length / 3
      h.endsAt = sent.monotonic + h.length - tick
    }
    this.keepBy(h.renewAt)
  }

  /** Tells a handler that its work is not wanted any more. */
  end (h: Held, reason: PunctualError): void {
    if (h.returned || h.message.signal.aborted) return
    if (reason.code !== 'closed') this.tell({ event: 'lost', topic: this.topic, message: h.message, error: reason })
    h.message.end(reason)
  }

  private drop (h: Held): void {
    this.held.delete(h)
    this.wake()
  }

  // Settlements

  /** Settles a message, and tries again while the lease lasts if that may help. */
  private async settle (h: Held, item: SettleItem): Promise<void> {
    h.returned = true
    this.unsettled++
    for (;;) {
      let { error, alone } = await this.settler.do(item)
      let again: SettleItem | undefined
      if (error?.code === 'lease_lost' && h.unsure) error = undefined // most likely an earlier try, whose answer did not arrive, has settled the message
      else if (error && item.then && error.definite && refusals.has(error.code) && (alone || !passing.has(error.code))) {
        this.tell({ event: 'settled', topic: this.topic, message: h.message, error, verb: item.verb })
        again = passing.has(error.code)
          ? settlement(h.message, 'snooze', { delay: 5000 })
          : settlement(h.message, 'retry', { error: `the follow-ups were not stored: ${error.detail}` })
      } else if (error && (passing.has(error.code) || !error.definite) && !isCode(error.cause, 'lease_lost')) {
        h.unsure ||= !error.definite
        if (performance.now() + h.pause < h.endsAt) again = item
      }
      if (!again) {
        this.unsettled--
        this.drop(h)
        this.tell({ event: 'settled', topic: this.topic, message: h.message, error, verb: item.verb })
        return
      }
      item = again
      await sleep(h.pause)
      h.pause = Math.min(2 * h.pause, 2000)
    }
  }

  private tell (e: WorkerEvent): void {
    if (e.error && e.event !== 'end') this.worker.log(`${this.topic}${e.message ? `/${e.message.id}` : ''}: ${e.event} ${e.verb ?? ''}: ${textOf(e.error)}`)
    this.worker.options.observer?.(e)
  }

  over (): void { clearTimeout(this.timer) }
}

const passing = new Set(['overloaded', 'unreachable', 'no_space', 'paused', 'closed', 'locked', 'store_failed', 'canceled', 'deadline', 'unauthenticated'])
const refusals = new Set(['invalid', 'too_large', 'unsupported', 'duplicate', 'changed', 'paused', 'no_space', 'overloaded', 'forbidden'])

/**
 * Claims the messages of some topics and runs their handlers. A handler that returns acks its
 * message; an error retries it when the topic's backoff says; see Snooze, RetryAfter, Discard and
 * Follow for other ends. A handler must not keep the event loop busy for as long as a third of a
 * lease, because leases could not be renewed meanwhile.
 */
export class Worker {
  readonly stopping = new AbortController()
  private readonly lanes = new Map<string, Lane>()
  private started = false

  constructor (readonly client: Client, readonly options: WorkerOptions = {}) {}

  /** Registers the handler of a topic, or of one of its groups. */
  handle (topic: string, handler: Handler, o: HandleOptions = {}): this {
    const name = o.group ? `${topic}@g.${o.group}` : topic
    const slots = o.slots ?? 16
    if (this.started) throw new PunctualError('invalid', 'register every handler before the worker is started')
    if (this.lanes.has(name)) throw new PunctualError('invalid', `topic ${name} has a handler already`)
    if (!(slots >= 1 && slots <= 10_000)) throw new PunctualError('invalid', `slots ${slots}: use 1 to 10000`)
    const timeout = millisOf(durationText(o.timeout ?? this.options.timeout ?? '1h')) ?? 0
    this.lanes.set(name, new Lane(this, name, handler, slots, timeout))
    return this
  }

  /** Begins to claim messages. invalid: a topic has groups, whose handlers get its messages. */
  async start (): Promise<void> {
    if (this.started || this.stopping.signal.aborted) throw new PunctualError('invalid', 'a worker is started once: make a new one')
    if (this.lanes.size === 0) throw new PunctualError('invalid', 'the worker has no handler')
    await Promise.all([...this.lanes.keys()].filter(t => !t.includes('@')).map(async t => { await this.checkGroups(t) }))
    this.started = true
    for (const lane of this.lanes.values()) lane.polling = lane.poll()
  }

  private async checkGroups (topic: string): Promise<void> {
    let groups: string[] | undefined
    try {
      groups = (await this.client.transport.call('GET', `/v1/topics/${segment(topic)}/settings`, undefined, { again: 'reading', retryFor: -1, timeout: 5000 })).body.groups
    } catch {
      return // the token may not inspect the topic, or no server answers yet
    }
    if (groups?.length) throw new PunctualError('invalid', `topic ${topic} has the groups ${groups.join(', ')}: handle those with { group: NAME }`)
  }

  /**
   * Claims nothing more, gives back what was not started, and waits for handlers that run. After
   * timeout ms (shutdownTimeout) it ends their signals, waits one second more, and throws. The message
   * of a handler that fails now is given back and uses no attempt.
   */
  async stop (timeout = this.options.shutdownTimeout ?? 25_000): Promise<void> {
    const until = performance.now() + timeout
    this.stopping.abort()
    const lanes = [...this.lanes.values()]
    for (const lane of lanes) lane.wakeUp()
    const busy = (): number => lanes.reduce((n, lane) => n + lane.running + lane.unsettled, 0)
    const wait = async (until: number): Promise<number> => {
      while (busy() > 0 && performance.now() < until) await sleep(2)
      return busy()
    }
    await Promise.all(lanes.map(async lane => { await lane.polling }))
    const running = await wait(until)
    let left = 0
    if (running > 0) {
      for (const lane of lanes) for (const h of lane.held) lane.end(h, new PunctualError('closed', 'the worker stops and its time is up'))
      left = await wait(performance.now() + 1000)
    }
    if (left === 0) for (const lane of lanes) lane.over()
    if (running > 0) throw new PunctualError('deadline', `handlers running when the time of stop was up: ${running}, not returned since: ${left}`)
  }

  /** Starts the worker, and stops it when a signal ends. */
  async run (signal: AbortSignal): Promise<void> {
    await this.start()
    await new Promise<void>(resolve => {
      if (signal.aborted) resolve()
      signal.addEventListener('abort', () => { resolve() })
    })
    await this.stop()
  }

  /** @internal */
  log (line: string): void { (this.options.log ?? console.warn)(line) }
}

export type { Instant }
