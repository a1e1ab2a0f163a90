import { errorKinds, type ErrorCode, type Problem } from './wire.js'

/**
 * An operation failed. definite says whether the operation certainly did not happen; code is the
 * same in every language, and remedy says what to do.
 */
export class PunctualError extends Error {
  readonly code: ErrorCode
  readonly definite: boolean
  readonly remedy: string
  /** The status of the server's answer, or 0 if the error is the client's own. */
  readonly status: number
  /** After how many milliseconds the server asks to try again, if it says so. */
  readonly retryAfter: number

  get detail (): string { return this.message }

  constructor (code: ErrorCode, detail: string, more: { definite?: boolean, remedy?: string, status?: number, retryAfter?: number, cause?: unknown } = {}) {
    const kind = (errorKinds as Record<string, { definite: boolean, remedy: string }>)[code]
    super(detail, { cause: more.cause })
    this.name = 'PunctualError'
    this.code = code
    this.definite = more.definite ?? kind?.definite ?? false
    this.remedy = more.remedy || kind?.remedy || "Look whether it happened; the server's log says more."
    this.status = more.status ?? 0
    this.retryAfter = more.retryAfter ?? 0
  }
}

/** The error that a problem in an answer says. */
export function errorOf (p: Problem, retryAfter = 0): PunctualError {
  return new PunctualError(p.code, p.detail, { definite: p.definite, remedy: p.remedy, status: p.status, retryAfter })
}

/** Tells whether an error is a PunctualError with one of these codes. */
export function isCode (e: unknown, ...codes: ErrorCode[]): e is PunctualError {
  return e instanceof PunctualError && codes.includes(e.code)
}
