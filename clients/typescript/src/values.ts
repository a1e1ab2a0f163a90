import { PunctualError } from './errors.js'

/** A length of time: milliseconds, or a text such as '30m' or '2h30m'. */
export type Duration = number | string

/** A point in time: a Date, or a text of RFC 3339. */
export type Instant = Date | string

/** The text of a duration, rounded up to a millisecond. */
export function durationText (d: Duration, name = 'delay'): string {
  if (typeof d === 'string') return d
  if (typeof d !== 'number' || !Number.isFinite(d)) throw new PunctualError('invalid', `${name} ${String(d)} is no duration: use milliseconds or a text such as '30m'`)
  return `${Math.ceil(d)}ms`
}

const units: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 }

/** The milliseconds of a duration as a server writes it, such as 2h30m. */
export function millisOf (text: string | undefined): number | undefined {
  if (!text) return undefined
  let total = 0
  let rest = text
  for (const [part, number, unit] of text.matchAll(/([\d.]+)(ms|[smhdw])/g)) {
    total += Number(number) * units[unit as string]!
    rest = rest.replace(part as string, '')
  }
  if (rest) throw new PunctualError('invalid', `duration ${text} is not understood`)
  return total
}

export function instantText (t: Instant): string {
  return typeof t === 'string' ? t : t.toISOString()
}

/** A local instant: on the monotonic clock, and on the wall clock, which goes on while a machine sleeps. Both in ms. */
export interface Local { monotonic: number, wall: number }

export function local (): Local {
  return { monotonic: performance.now(), wall: Date.now() }
}

/** How many milliseconds may have passed between two local instants, suspension included. */
export function passed (from: Local, to: Local): number {
  const d = to.monotonic - from.monotonic
  const slept = to.wall - from.wall
  return slept > d + 2 ? slept : d
}

/**
 * An upper bound of the store's clock: a lease that ends after the bound surely holds. When the
 * answer to a call sent at s shows the time D, the store's clock had not passed D at s. So it shows
 * at most D and the time since s, and one part in a thousand more, by which clocks differ.
 */
export class StoreClock {
  private at: Local | undefined
  private bound = Infinity

  /** The latest time in ms that the store's clock can show at a local instant. */
  latest (now: Local): number {
    return this.at ? this.bound + passed(this.at, now) * 1.001 : Infinity
  }

  /** How old the bound is, in ms. */
  age (): number { return this.at ? passed(this.at, local()) : Infinity }

  observe (sent: Local, received: Local, shown: number): void {
    const bound = shown + 1 + passed(sent, received) * 1.001
    const old = this.latest(received)
    if (bound < old || old < shown) {
      this.at = received
      this.bound = bound
    }
  }

  reset (): void { this.at = undefined }
}

/** Waits for some ms; ends early with a signal. */
export async function sleep (ms: number, signal?: AbortSignal): Promise<void> {
  await new Promise<void>(resolve => {
    if (signal?.aborted) return resolve()
    const done = (): void => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', done)
      resolve()
    }
    const timer = setTimeout(done, Math.min(ms, 2 ** 31 - 1))
    signal?.addEventListener('abort', done)
  })
}
