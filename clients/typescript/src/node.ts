// What Node has beside a browser: unix sockets, authorities of one's own, a token from a file, signals,
// and a server for tests. This is the package's main file in Node.

import { spawn } from 'node:child_process'
import { webcrypto } from 'node:crypto'
import { readFileSync } from 'node:fs'
import * as http from 'node:http'
import * as https from 'node:https'
import { hostname } from 'node:os'
import { Client as AnyClient } from './client.js'
import { PunctualError } from './errors.js'
import { Lost, neverSent, Unsent, type Copy, type Exchange, type Reply, type TransportOptions } from './transport.js'
import { Worker as AnyWorker } from './worker.js'

if (globalThis.crypto === undefined) Object.assign(globalThis, { crypto: webcrypto }) // Node 18 has it only in a module

export * from './index.js'

export interface ClientOptions extends TransportOptions {
  /** Holds the token; it is read again when a server refuses the token. */
  tokenFile?: string
  /** The authorities to trust, in place of the system's. */
  caFile?: string
}

/** Calls one server, or several servers of the same store. */
export class Client extends AnyClient {
  private readonly endExchange: (() => void) | undefined

  constructor (url: string | string[] = 'http://localhost:7878', options: ClientOptions = {}) {
    const { tokenFile, caFile, ...rest } = options
    if (tokenFile && rest.token) throw new PunctualError('invalid', 'both a token and a file of a token are given: give one of them')
    const own = rest.exchange ? undefined : nodeExchange(caFile)
    super(url, {
      name: `${hostname()}/${process.pid}`, ...(own && { exchange: own.exchange }), ...rest,
      ...(tokenFile && { readToken: () => readToken(tokenFile) })
    })
    this.endExchange = own?.end
  }

  override close (): void {
    super.close()
    this.endExchange?.()
  }
}

function readToken (file: string): string {
  let token: string
  try {
    token = readFileSync(file, 'utf8').trim()
  } catch (e) {
    throw new PunctualError('invalid', `read the token: ${(e as Error).message}`)
  }
  if (!/^[!-~]+$/.test(token)) throw new PunctualError('invalid', `file ${file} holds no token of printable ASCII`)
  return token
}

/** Exchange over connections that are kept; end closes those that are free. */
function nodeExchange (caFile?: string): { exchange: Exchange, end: () => void } {
  const plain = new http.Agent({ keepAlive: true })
  const tls = new https.Agent({ keepAlive: true, ...(caFile && { ca: readFileSync(caFile, 'utf8') }) })
  const places = new Map<string, object>()
  const placeOf = (url: string): object => {
    if (url.startsWith('unix:')) return { socketPath: url.slice(5), agent: plain, prefix: '' }
    const u = new URL(url)
    return { protocol: u.protocol, hostname: u.hostname.replace(/^\[|\]$/g, ''), port: u.port || undefined, agent: u.protocol === 'https:' ? tls : plain, prefix: u.pathname.replace(/\/$/, '') }
  }
  const exchange = async (c: Copy): Promise<Reply> => await new Promise<Reply>((resolve, reject) => {
    let place = places.get(c.url)
    if (!place) places.set(c.url, place = placeOf(c.url))
    const body = c.body === undefined ? undefined : new TextEncoder().encode(c.body)
    const headers = body ? { ...c.headers, 'Content-Length': body.length } : c.headers
    const options = { ...place, path: (place as { prefix: string }).prefix + c.path, method: c.method, headers }
    const fail = (e: Error & { code?: string }): void => {
      over()
      const text = `${c.url}: ${e.message || e.code || 'no answer'}`
      reject(neverSent.has(e.code ?? '') ? new Unsent(text) : new Lost(text))
    }
    const request = (c.url.startsWith('https:') ? https : http).request(options, answer => {
      const parts: string[] = []
      answer.setEncoding('utf8')
      answer.on('data', (part: string) => { parts.push(part) })
      answer.on('error', fail)
      answer.on('end', () => {
        over()
        if (!answer.complete) return reject(new Lost(`${c.url}: the answer broke off`))
        resolve({ status: answer.statusCode, header: name => answer.headers[name.toLowerCase()] ?? '', text: parts.join('') })
      })
    })
    const abort = (): void => { request.destroy(new Error('the call was ended')) }
    const timer = setTimeout(() => { request.destroy(new Error('no answer came in time')) }, c.timeout)
    const over = (): void => {
      clearTimeout(timer)
      c.signal?.removeEventListener('abort', abort)
    }
    request.on('error', fail)
    c.signal?.addEventListener('abort', abort)
    if (c.signal?.aborted) abort()
    request.end(body)
  })
  return { exchange, end: () => { plain.destroy(); tls.destroy() } }
}

/** Claims the messages of some topics and runs their handlers. */
export class Worker extends AnyWorker {
  /** Starts the worker, and stops it when a signal ends; without one on SIGINT or SIGTERM. */
  override async run (signal?: AbortSignal): Promise<void> {
    if (signal) return await super.run(signal)
    const ended = new AbortController()
    const end = (): void => ended.abort()
    for (const s of ['SIGINT', 'SIGTERM']) process.once(s, end)
    try {
      await super.run(ended.signal)
    } finally {
      for (const s of ['SIGINT', 'SIGTERM']) process.off(s, end)
    }
  }
}

/**
 * Starts "punctual serve" with a store in memory on a free port, for tests, and returns a client and
 * the function that ends both. The program is binary, PUNCTUAL_BINARY or "punctual" in the PATH.
 */
export async function startTestServer (o: { binary?: string, store?: string } = {}): Promise<{ client: Client, stop: () => Promise<void> }> {
  const program = o.binary ?? process.env.PUNCTUAL_BINARY ?? 'punctual'
  const child = spawn(program, ['serve', '--store', o.store ?? 'mem:', '--listen', '127.0.0.1:0'], { stdio: ['ignore', 'pipe', 'inherit'] })
  const ended = new Promise<void>(resolve => { child.on('exit', () => { resolve() }) })
  const url = await new Promise<string>((resolve, reject) => {
    let text = ''
    child.on('error', (e: Error) => { reject(new Error(`${program}: ${e.message}: install punctual, or name it in PUNCTUAL_BINARY`)) })
    child.on('exit', () => { reject(new Error(`${program} serve did not start: ${text}`)) })
    child.stdout.setEncoding('utf8')
    child.stdout.on('data', (part: string) => {
      text += part
      const found = / on (http\S+)\s/.exec(text)
      if (found) resolve(found[1]!)
    })
  })
  const client = new Client(url)
  return {
    client,
    stop: async () => {
      client.close()
      child.kill()
      await ended
    }
  }
}
