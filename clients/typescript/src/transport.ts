// Sends requests: several servers, lost answers, tokens. A request goes to one server after another
// until one of them answers, each time with the same key, so that a server which has carried out an
// earlier copy answers as before. The difficulty is a server that was started anew: it has forgotten
// the answers, so it cannot tell whether an earlier copy was carried out (Sending.unsure).

import { errorOf, PunctualError } from './errors.js'
import { local, millisOf, sleep, StoreClock } from './values.js'
import type { Info, Problem } from './wire.js'

/** Whether a request may be sent a second time: always; not when a copy may have arrived; to a server that knows its key; also to another one. */
export type Again = 'reading' | 'once' | 'keyed' | 'anew'

/** This copy was certainly not carried out. */
export class Unsent extends Error {}

/** This copy may have been carried out. */
export class Lost extends Error {}

export interface Copy { url: string, method: string, path: string, headers: Record<string, string>, body: string | undefined, timeout: number, signal: AbortSignal | undefined }

export interface Reply { status: number, header: (name: string) => string, text: string }

/** Sends one copy of a request and reads the answer; it throws Unsent or Lost. */
export type Exchange = (c: Copy) => Promise<Reply>

/** Exchange by fetch, for browsers, Deno and Bun. */
export async function fetchExchange (c: Copy): Promise<Reply> {
  const end = new AbortController()
  const abort = (): void => end.abort()
  const timer = setTimeout(abort, c.timeout)
  c.signal?.addEventListener('abort', abort)
  if (c.signal?.aborted) abort()
  try {
    const answer = await fetch(c.url + c.path, { method: c.method, headers: c.headers, body: c.body, signal: end.signal })
    return { status: answer.status, header: name => answer.headers.get(name) ?? '', text: await answer.text() }
  } catch (e) {
    const cause = (e as { cause?: { code?: string, message?: string } }).cause
    const text = `${c.url}: ${cause?.message ?? (e as Error).message}`
    throw neverSent.has(cause?.code ?? '') ? new Unsent(text) : new Lost(text)
  } finally {
    clearTimeout(timer)
    c.signal?.removeEventListener('abort', abort)
  }
}

/** The codes of errors of connections that were never made. */
export const neverSent = new Set(['ECONNREFUSED', 'ENOTFOUND', 'EAI_AGAIN', 'EHOSTUNREACH', 'ENETUNREACH', 'ENOENT', 'DEPTH_ZERO_SELF_SIGNED_CERT', 'SELF_SIGNED_CERT_IN_CHAIN', 'UNABLE_TO_VERIFY_LEAF_SIGNATURE', 'CERT_HAS_EXPIRED', 'ERR_TLS_CERT_ALTNAME_INVALID'])

export interface TransportOptions {
  /** Sent with every request. */
  token?: string
  /** Reads the token again when a server refuses it. */
  readToken?: () => string
  /** Allows http URLs of other machines beside a token. */
  plaintextToken?: boolean
  /** How many ms one request may take, beside the time that a claim waits. Default 10,000. */
  timeout?: number
  /** For how many ms a call is repeated while no server answers. Default 15,000. */
  retryFor?: number
  /** The name of this program in lists of consumers. */
  name?: string
  exchange?: Exchange
}

export interface CallOptions {
  query?: Record<string, unknown>
  again?: Again
  wait?: number
  key?: string
  notAfter?: string
  signal?: AbortSignal
  retryFor?: number
  timeout?: number
}

/** doubt: an earlier copy may have been carried out by a server that has forgotten it since. */
export interface Answer { status: number, body: any, doubt: boolean }

export const longAgo = '1970-01-01T00:00:00.001Z'
const firstPause = 5
const lastPause = 500

interface Endpoint { url: string, instance: string, repeats: number }

export class Transport {
  readonly clock = new StoreClock()
  readonly timeout: number
  readonly retryFor: number
  readonly name: string
  readonly exchange: Exchange
  readonly endpoints: Endpoint[]
  readonly answered: string[] = []
  preferred = 0
  closed = false
  token: string
  private readonly readToken: (() => string) | undefined
  private readonly sender = Array.from(crypto.getRandomValues(new Uint8Array(10)), b => b.toString(16).padStart(2, '0')).join('')
  private requests = 0

  constructor (urls: string[], o: TransportOptions) {
    if (urls.length === 0) throw new PunctualError('invalid', 'no URL of a server is given')
    this.readToken = o.readToken
    this.token = o.token ?? o.readToken?.() ?? ''
    this.timeout = o.timeout ?? 10_000
    this.retryFor = o.retryFor ?? 15_000
    this.name = o.name ?? ''
    this.exchange = o.exchange ?? fetchExchange
    this.endpoints = urls.map(text => ({ url: this.check(text.trim(), o.plaintextToken === true), instance: '', repeats: 0 }))
  }

  private check (text: string, plaintextToken: boolean): string {
    if (text.startsWith('unix:')) return text
    let u: URL
    try {
      u = new URL(text)
    } catch {
      throw new PunctualError('invalid', 'the URL of a server is malformed: use http://HOST:PORT, https://HOST:PORT or unix:PATH')
    }
    if (!['http:', 'https:'].includes(u.protocol)) throw new PunctualError('invalid', `URL ${u.protocol}: use http://HOST:PORT, https://HOST:PORT or unix:PATH`)
    if (u.username || u.password || u.search || u.hash) throw new PunctualError('invalid', 'the URL of a server holds no name, password, query or fragment: use a token')
    if (u.protocol === 'http:' && this.token && !plaintextToken && !/^(localhost|127\..*|\[::1\])$/.test(u.hostname)) {
      throw new PunctualError('invalid', 'whoever listens on the way would read the token: use https, or allow it with plaintextToken')
    }
    return u.origin + u.pathname.replace(/\/$/, '')
  }

  /** Reads the token again and tells whether it is another now. */
  rereadToken (): boolean {
    const token = this.readToken?.() ?? this.token
    const changed = token !== this.token
    this.token = token
    return changed
  }

  newKey (): string { return `${this.sender}-${(++this.requests).toString(36)}` }

  /** Sends a request until a server answers, and returns the answer. A problem is thrown as a PunctualError. */
  async call (method: string, path: string, body?: unknown, o: CallOptions = {}): Promise<Answer> {
    if (this.closed) throw new PunctualError('closed', 'the client was closed')
    const query = Object.entries(o.query ?? {}).filter(([, v]) => v !== undefined && v !== '' && v !== false)
      .map(([k, v]) => `${k}=${encodeURIComponent(v instanceof Date ? v.toISOString() : String(v))}`).join('&')
    return await new Sending(this, method, query ? `${path}?${query}` : path, body, o).untilAnswered()
  }
}

/** A request and what is known of the copies that were sent of it. */
class Sending {
  private readonly again: Again
  private readonly key: string
  private readonly wait: number
  private readonly timeout: number
  private readonly retryFor: number
  private readonly body: string | undefined
  private copies = 0
  /** Until when, in ms of the store's clock, the answer to the first copy is surely kept. */
  private kept: number | undefined
  /** A copy may have been carried out; and its server has forgotten it. */
  private unsure = false
  private doubt = false
  /** The instance that the latest copy named, and the one that the copy in doubt named. */
  private named = ''
  private instance = ''
  /** Those that cannot know what became of that copy. */
  private readonly strange = new Set<Endpoint>()
  private until: number | undefined
  private last: Error = new Unsent('no server was asked')

  constructor (private readonly t: Transport, private readonly method: string, private readonly path: string, body: unknown, private readonly o: CallOptions) {
    this.again = o.again ?? 'once'
    this.key = o.key ?? (this.again === 'keyed' || this.again === 'anew' ? t.newKey() : '')
    this.wait = o.wait ?? 0
    this.timeout = o.timeout ?? t.timeout
    this.retryFor = o.retryFor ?? t.retryFor
    this.body = body === undefined ? undefined : JSON.stringify(body)
  }

  async untilAnswered (): Promise<Answer> {
    const all = this.t.endpoints
    const first = this.t.preferred
    for (let round = 0, pause = firstPause; ; round++, pause = Math.min(2 * pause, lastPause)) {
      for (let i = 0; i < all.length; i++) {
        const at = (first + i) % all.length
        const answer = await this.try(all[at]!)
        if (answer) {
          this.t.preferred = at
          return answer
        }
        if (this.ended() || this.strange.size === all.length || (round > 0 && this.over())) throw this.giveUp()
      }
      if (this.over()) throw this.giveUp()
      await sleep(pause / 2 + Math.random() * pause, this.o.signal)
      if (this.ended()) throw this.giveUp()
    }
  }

  private ended (): boolean { return this.t.closed || this.o.signal?.aborted === true }

  private over (): boolean { return this.until !== undefined && performance.now() >= this.until }

  /** Sends a copy to one server. undefined says that another server may be asked. */
  private async try (e: Endpoint): Promise<Answer | undefined> {
    for (let i = 0; i < 4 && !this.strange.has(e); i++) {
      try {
        return await this.copy(e)
      } catch (err) {
        if (!(err instanceof Lost) && !(err instanceof Unsent)) throw err
        this.last = err
        this.until ??= performance.now() + this.retryFor
        if (err instanceof Lost) {
          if (this.again !== 'reading' && !this.unsure) {
            this.unsure = true
            this.instance = this.named
          }
          if (this.again === 'once') throw this.giveUp()
          return undefined
        }
        if (!this.named || e.instance === this.named) return undefined // otherwise the server was started anew, and is asked again at once
      }
    }
    return undefined
  }

  private giveUp (): PunctualError {
    const why = this.t.closed ? 'the client was closed' : this.last.message
    if (this.unsure && this.again !== 'reading') return new PunctualError('indeterminate', why)
    return new PunctualError(this.ended() ? 'closed' : 'unreachable', why)
  }

  private async exchange (e: Endpoint, method: string, path: string, headers: Record<string, string>, body: string | undefined, timeout: number): Promise<Reply> {
    if (this.t.token) headers.Authorization = `Bearer ${this.t.token}`
    if (this.t.name) headers['Punctual-Consumer'] = this.t.name
    const r = await this.t.exchange({ url: e.url, method, path, headers, body, timeout, signal: this.o.signal })
    if (r.header('Punctual-Not-Begun')) throw new Unsent(`${e.url}: the server ends the connection`)
    return r
  }

  /** Asks a server what it is, and what the store's clock shows. */
  private async ask (e: Endpoint): Promise<void> {
    if (!e.repeats) {
      const info = await this.plain<Info>(e, '/v1')
      if (info.service !== 'punctual') throw new PunctualError('invalid', `${e.url} is no Punctual server: see that the URL is right`)
      e.repeats = millisOf(info.repeats) ?? 0
      if (!e.repeats) throw new PunctualError('unsupported', `${e.url} keeps no answers of requests: it is older than this client needs`)
    }
    const sent = local()
    const { now } = await this.plain<{ now: string }>(e, '/v1/clock')
    this.t.clock.observe(sent, local(), Date.parse(now))
  }

  private async plain<T> (e: Endpoint, path: string): Promise<T> {
    const r = await this.exchange(e, 'GET', path, {}, undefined, this.timeout)
    const p = problem(r)
    if (p && ['closed', 'store_failed', 'unreachable', 'locked'].includes(p.code)) throw new Unsent(`${e.url}: ${p.detail}`)
    if (p && !(p.code === 'unauthenticated' && this.t.rereadToken())) throw errorOf(p)
    if (p) throw new Unsent(`${e.url}: the token was read anew`)
    if (r.status >= 500) throw new Unsent(`${e.url} answered status ${r.status}`)
    if (r.status !== 200) throw noServer(e, r.status)
    e.instance = r.header('Punctual-Instance')
    return JSON.parse(r.text) as T
  }

  private async copy (e: Endpoint): Promise<Answer> {
    const headers = this.key ? await this.headers(e) : {}
    if (this.body !== undefined) headers['Content-Type'] = 'application/json'
    this.named = e.instance
    const r = await this.exchange(e, this.method, this.path, headers, this.body, this.wait + this.timeout)
    const p = problem(r)
    const good = r.status >= 200 && r.status < 300
    if (good || p) e.instance = r.header('Punctual-Instance')
    if (r.status === 421 && e.instance !== this.named) {
      e.repeats = 0
      throw new Unsent(`${e.url} has been started anew and does not know what became of the request`)
    }
    if (good) {
      if (this.key && this.copies === 1 && this.t.answered.length < 256) this.t.answered.push(this.key)
      return { status: r.status, body: r.text ? JSON.parse(r.text) : undefined, doubt: this.doubt }
    }
    if (!p) {
      if (r.status >= 500) throw new Lost(`${e.url} answered status ${r.status}, which no Punctual server gives in this way`)
      throw noServer(e, r.status)
    }
    throw await this.refused(e, p, r)
  }

  /** The headers by which servers know a copy. */
  private async headers (e: Endpoint): Promise<Record<string, string>> {
    try {
      if (!e.repeats || this.t.clock.age() > 60_000) await this.ask(e)
    } catch (err) {
      throw err instanceof Lost ? new Unsent(err.message) : err // the request itself was not sent
    }
    if (this.unsure && e.instance !== this.instance) {
      if (this.again !== 'anew') {
        this.strange.add(e)
        throw new Unsent(`${e.url} has been started anew and does not know what became of the request`)
      }
      this.unsure = false
      this.doubt = true
      this.copies = 0
      this.kept = undefined
    }
    this.copies++
    const now = this.t.clock.latest(local())
    this.kept ??= now + e.repeats
    const ahead = Math.min(this.wait + 2 * this.timeout + Math.max(0, this.retryFor), e.repeats * 0.75)
    const headers: Record<string, string> = {
      'Punctual-Request': this.key,
      'Punctual-Not-After': this.o.notAfter ?? new Date(Math.min(now + ahead, this.kept)).toISOString()
    }
    if (this.copies === 1 && !this.o.notAfter) headers['Punctual-Copy'] = '1'
    if (e.instance) headers['Punctual-Instance'] = e.instance
    const answered = this.t.answered.splice(0, 64)
    if (answered.length) headers['Punctual-Answered'] = answered.join(',')
    return headers
  }

  /** Decides what a problem means for a request whose earlier copies may have been carried out. */
  private async refused (e: Endpoint, p: Problem, r: Reply): Promise<Error> {
    const { code, definite, detail } = p
    const clock = this.t.clock
    const error = errorOf(p, Number(r.header('Retry-After') || 0) * 1000)
    if (code === 'deadline' && definite && this.key && !this.o.notAfter) {
      // The server has not carried this copy out, and has no answer of an earlier one.
      if (this.unsure && this.kept !== undefined && clock.latest(local()) >= this.kept) return new PunctualError('indeterminate', detail)
      this.unsure = false
      this.kept = undefined
      clock.reset()
      return new Unsent(detail)
    }
    if (code === 'invalid' && definite && this.key && !this.o.notAfter) {
      const before = clock.latest(local()) // after a step of the store's clock back the Not-After may lie too far ahead
      clock.reset()
      await this.ask(e)
      if (before - clock.latest(local()) > 2000) {
        this.kept = undefined
        return new Unsent(detail)
      }
    }
    if (['closed', 'store_failed', 'unreachable', 'locked'].includes(code)) return new Unsent(`${e.url}: ${detail}`)
    if (code === 'unauthenticated' && this.t.rereadToken()) return new Unsent(detail)
    if (code === 'overloaded' && this.unsure) return new Unsent(detail)
    const fromStore = !['unauthenticated', 'forbidden', 'overloaded', 'too_large', 'invalid'].includes(code)
    if (definite && this.again !== 'reading' && (this.doubt || (this.unsure && !fromStore))) {
      return new PunctualError('indeterminate', this.doubt ? `the server that was told first has ended; now: ${detail}` : detail)
    }
    return error
  }
}

function noServer (e: Endpoint, status: number): PunctualError {
  return new PunctualError('invalid', `${e.url} answered status ${status}, which no Punctual server gives in this way: see that the URL is right`)
}

function problem (r: Reply): Problem | undefined {
  if (!r.header('Content-Type').startsWith('application/problem+json')) return undefined
  try {
    const p = JSON.parse(r.text) as Problem
    return p.code ? p : undefined
  } catch {
    return undefined
  }
}

/** A topic, an ID or a name as a part of a path. */
export function segment (text: string): string {
  return text === '.' ? '%2E' : text === '..' ? '%2E%2E' : encodeURIComponent(text)
}
