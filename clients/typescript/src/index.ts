/** Client and worker for Punctual, which delivers a message at the time asked for. */
export { Client, Delivery, message, settlement, type Body, type ClaimOptions, type ListOptions, type Outcome, type PushOptions, type SettleOptions } from './client.js'
export { isCode, PunctualError } from './errors.js'
export { fetchExchange, Lost, Unsent, type Copy, type Exchange, type Reply, type TransportOptions } from './transport.js'
export type { Duration, Instant } from './values.js'
export * as wire from './wire.js'
export { Discard, Follow, HandledMessage, RetryAfter, Snooze, Worker, type Handler, type HandleOptions, type WorkerEvent, type WorkerOptions } from './worker.js'
