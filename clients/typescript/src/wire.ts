// Generated from /openapi.json by "go generate ./server". DO NOT EDIT.
// The bodies of requests and answers, and the kinds of errors.

export interface Abilities {
  bounds_leases?: boolean
  duties?: boolean
  emit?: boolean
  follow: 'none' | 'family' | 'any'
  keys?: boolean
}

export interface AmendAnswer {
  results: Array<AmendResult>
}

export interface AmendItem {
  at?: string
  at_local?: string
  change: 'cancel' | 'reschedule' | 'requeue' | 'delete'
  due?: string
  id: string
  if_due?: string
  in?: string
  topic: string
  zone?: string
}

export interface AmendRequest {
  amendments: Array<AmendItem>
}

export interface AmendResult {
  due?: string
  error?: Problem
  id: string
  outcome?: 'cancelled' | 'rescheduled' | 'requeued' | 'deleted'
  topic: string
}

export interface BulkItem {
  due: string
  id: string
  new_due?: string
}

export interface BulkReport {
  changed: number
  complete?: boolean
  continued?: string
  done: number
  error?: Problem
  failed: number
  failure?: Problem
  first?: Array<BulkItem>
  gone: number
  leased: number
  looked: number
  matched: number
}

export interface BulkRequest {
  at?: string
  at_local?: string
  by?: string
  do: string
  dry_run?: boolean
  due?: string
  error?: string
  from?: string
  headers?: Record<string, string>
  id?: string
  id_prefix?: string
  in?: string
  key?: string
  rate?: number
  reason?: string
  state?: string
  to?: string
  zone?: string
}

export interface CheckLine {
  error?: Problem
  read?: number
  report?: CheckReport
}

export interface CheckReport {
  dead: number
  live: number
  problems: Array<string>
  topics: number
}

export interface ClaimAnswer {
  messages: Array<Delivery>
}

export interface ClaimRequest {
  ids?: Array<string>
  lease?: string
  max?: number
  per_topic?: number
  topics: Array<string>
  wait?: string
}

export interface Clock {
  now: string
}

export interface ClockState {
  ahead: string
  follows: string
  from?: string
  now: string
  steps: number
  to?: string
}

export interface Consumer {
  address?: string
  claimed: number
  last_seen: string
  leases: number
  name?: string
  next_end?: string
  settled: number
  user?: string
  waiting: number
}

export interface Consumers {
  consumers: Array<Consumer>
  others?: Consumer
  since: string
}

export interface Delivery {
  attempt: number
  /** The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then. */
  body?: string
  body_base64?: string
  created: string
  delivered: string
  drop_expired?: boolean
  due: string
  expires?: string
  failures?: Array<Failure>
  first_due: string
  headers?: Record<string, string>
  headers_base64?: Record<string, string>
  id: string
  key?: string
  late_ms: number
  lease_until: string
  max_attempts?: number
  remember?: string
  timeout?: string
  token: string
  topic: string
  total_late_ms: number
  turn?: string
}

export interface Examination {
  error?: Problem
  findings: Array<Finding>
}

export interface Failure {
  at: string
  attempt: number
  error: string
}

export interface Finding {
  name: string
  remedy?: string
  severity: 'good' | 'warning' | 'bad'
  value: string
}

export interface Finished {
  at: string
  attempt: number
  by?: string
  created: string
  delivered?: string
  due: string
  failures?: Array<Failure>
  first_due: string
  id: string
  kept_until: string
  outcome: 'acked' | 'cancelled' | 'expired'
  topic: string
}

export interface FinishedPage {
  next?: string
  records: Array<Finished>
}

export interface Forecast {
  beyond: number
  counts: Array<number>
  from: string
  overdue: number
  step: string
  topic?: string
}

export interface Health {
  reasons?: Array<string>
  status: 'ok' | 'degraded'
}

export interface Info {
  abilities?: Abilities
  checker: boolean
  compact?: number
  durability?: 'fsync' | 'replicated' | 'volatile'
  examiner: boolean
  farewell?: boolean
  inspector: boolean
  limits: Limits
  repeats?: string
  service: string
  version: string
}

export interface Limits {
  max_batch: number
  max_body: number
  max_claim: number
  max_request: number
  max_wait: string
  max_window: number
}

export interface Message {
  attempt: number
  /** The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then. */
  body?: string
  body_base64?: string
  cancel_requested?: boolean
  created: string
  died?: string
  drop_expired?: boolean
  due: string
  expires?: string
  failures?: Array<Failure>
  first_due: string
  headers?: Record<string, string>
  headers_base64?: Record<string, string>
  id: string
  key?: string
  lease_until?: string
  max_attempts?: number
  reason?: 'discarded' | 'attempts used up' | 'expired'
  remember?: string
  state: 'scheduled' | 'ready' | 'leased' | 'dead'
  timeout?: string
  topic: string
  waiting?: boolean
}

export interface Names {
  mark?: string
  topics: Array<string>
}

export interface Occurrence {
  at: string
  due: string
  id: string
  status?: string
}

export interface Occurrences {
  kept?: number
  occurrences: Array<Occurrence>
  stored?: number
}

export interface Page {
  messages: Array<Message>
  next?: string
}

export interface Problem {
  code: 'indeterminate' | 'invalid' | 'too_large' | 'unsupported' | 'not_found' | 'duplicate' | 'lease_lost' | 'cancelled' | 'leased' | 'not_dead' | 'changed' | 'paused' | 'closed' | 'overloaded' | 'unreachable' | 'unauthenticated' | 'forbidden' | 'no_space' | 'locked' | 'corrupt' | 'store_failed' | 'durability' | 'canceled' | 'deadline' | 'internal'
  definite: boolean
  detail: string
  remedy?: string
  status: number
  title?: string
  type?: string
}

export interface Purged {
  purged: number
  topic: string
}

export interface PushAnswer {
  results: Array<PushResult>
}

export interface PushItem {
  at?: string
  at_local?: string
  /** The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then. */
  body?: string
  body_base64?: string
  drop_expired?: boolean
  due?: string
  expire?: string
  headers?: Record<string, string>
  headers_base64?: Record<string, string>
  id?: string
  if_due?: string
  if_exists?: 'keep' | 'replace' | 'replace-dead' | 'fail'
  in?: string
  key?: string
  max_attempts?: number
  remember?: string
  timeout?: string
  topic?: string
  zone?: string
}

export interface PushRequest {
  messages: Array<PushItem>
}

export interface PushResult {
  due?: string
  error?: Problem
  existing?: 'scheduled' | 'ready' | 'leased' | 'dead'
  id?: string
  result?: 'stored' | 'duplicate' | 'replaced'
  topic?: string
}

export interface Schedule {
  /** The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then. */
  body?: string
  body_base64?: string
  changed?: string
  counts: ScheduleCounts
  created?: string
  drop_expired?: boolean
  ended?: boolean
  except?: Array<string>
  expire?: string
  from?: string
  grace?: string
  headers?: Record<string, string>
  headers_base64?: Record<string, string>
  key?: string
  last: Array<Occurrence>
  limit?: number
  max_attempts?: number
  max_dead?: number
  missed?: 'latest' | 'all' | 'none'
  name: string
  next: Array<Occurrence>
  overdue?: string
  overlap?: 'skip' | 'allow' | 'replace'
  paused?: SchedulePause
  problem?: string
  remember?: string
  result?: 'stored' | 'duplicate' | 'replaced'
  spec: string
  spread?: string
  timeout?: string
  topic: string
  until?: string
  warnings?: Array<string>
  words?: string
  zone?: string
}

export interface ScheduleCounts {
  missed: number
  skipped: number
  stored: number
}

export interface ScheduleItem {
  /** The message's body when it is UTF-8. In a request any other JSON value but null may stand here, too; its text is the body then. */
  body?: string
  body_base64?: string
  drop_expired?: boolean
  except?: Array<string>
  expire?: string
  from?: string
  grace?: string
  headers?: Record<string, string>
  headers_base64?: Record<string, string>
  key?: string
  limit?: number
  max_attempts?: number
  max_dead?: number
  missed?: 'latest' | 'all' | 'none'
  overlap?: 'skip' | 'allow' | 'replace'
  remember?: string
  spec: string
  spread?: string
  timeout?: string
  until?: string
  zone?: string
}

export interface SchedulePause {
  at: string
  by?: string
  note?: string
}

export interface Schedules {
  next?: string
  schedules: Array<Schedule>
}

export interface Settings {
  /** How long a message that failed waits before its next attempt: delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to 3650d. Default exp:1s..1h,jitter=0.2. */
  backoff: string
  /** How long dead messages are kept: 0 (until purged) or more. Default 0s. */
  dead_retention: string
  /** How long the ID of a finished message counts as a duplicate: 0 (not at all) or more. Default 0s. */
  dedupe_window: string
  /** Whether claims find nothing: true or false. Default false. */
  delivery_paused: boolean
  /** Of which events of its messages the topic tells in its companion events, on stores that can: acked, dead, cancelled, expired, pushed, retried, missed, skipped with commas between them, or none. Default none. */
  emit: string
  /** How long an event that no reader has taken is kept, on stores that can: 1s to 366d. Default 1d. */
  emit_keep: string
  /** How long the record of a finished message is kept, on stores that can: 0 (not at all) to 366d. Default 0s. */
  finished_retention: string
  /** Which groups get a copy of each message once it is due: none, or 1 to 32 names of 1 to 62 bytes of A-Z a-z 0-9 . _ -. Default none. */
  groups: Array<string>
  /** Whether the messages of a key are delivered one after the other, in order, on stores that can: true or false. Default false. */
  in_order: boolean
  /** Whether messages may have keys, which take turns, on stores that can; fixed once the topic exists: true or false. Default false. */
  keyed: boolean
  /** How long a message may be ready before the topic counts as late: 1s to 366d. Default 10s. */
  late_after: string
  /** How long a claim may work before the message is ready again, unless the lease is extended: 10ms to 1d. Default 30s. */
  lease: string
  /** How many deliveries a message gets before it is dead: 1 to 1000000. Default 10. */
  max_attempts: number
  /** How many messages of one key may be leased at once, on stores that can: 0 (no bound) to 1000000. Default 0. */
  max_key_leases: number
  /** How many leases of one key may begin in a time, on stores that can: none, or a rate like 10/1s or 1000/1m,burst=5. Default none. */
  max_key_rate: string
  /** How many messages may be leased at once, over all processes, on stores that can: 0 (no bound) to 1000000. Default 0. */
  max_leases: number
  /** How many leases may begin in a time, over all processes, on stores that can: none, or a rate like 10/1s or 1000/1m,burst=5. Default none. */
  max_rate: string
  /** Into how many parts the topic is divided, on stores that can; fixed once the topic exists: 1 to 256. Default 1. */
  partitions: number
  /** Whether pushes are refused: true or false. Default false. */
  push_paused: boolean
}

export interface SettingsPatch {
  /** How long a message that failed waits before its next attempt: delays like 2m,10m,1h or exp:1s..1h,jitter=0.2, each 0 to 3650d. Default exp:1s..1h,jitter=0.2. */
  backoff?: string
  /** How long dead messages are kept: 0 (until purged) or more. Default 0s. */
  dead_retention?: string
  /** How long the ID of a finished message counts as a duplicate: 0 (not at all) or more. Default 0s. */
  dedupe_window?: string
  /** Whether claims find nothing: true or false. Default false. */
  delivery_paused?: boolean
  /** Of which events of its messages the topic tells in its companion events, on stores that can: acked, dead, cancelled, expired, pushed, retried, missed, skipped with commas between them, or none. Default none. */
  emit?: string
  /** How long an event that no reader has taken is kept, on stores that can: 1s to 366d. Default 1d. */
  emit_keep?: string
  /** How long the record of a finished message is kept, on stores that can: 0 (not at all) to 366d. Default 0s. */
  finished_retention?: string
  /** Which groups get a copy of each message once it is due: none, or 1 to 32 names of 1 to 62 bytes of A-Z a-z 0-9 . _ -. Default none. */
  groups?: Array<string>
  /** Only while these settings have these values; otherwise nothing is changed, and the answer is 409. */
  if?: unknown
  /** Whether the messages of a key are delivered one after the other, in order, on stores that can: true or false. Default false. */
  in_order?: boolean
  /** Whether messages may have keys, which take turns, on stores that can; fixed once the topic exists: true or false. Default false. */
  keyed?: boolean
  /** How long a message may be ready before the topic counts as late: 1s to 366d. Default 10s. */
  late_after?: string
  /** How long a claim may work before the message is ready again, unless the lease is extended: 10ms to 1d. Default 30s. */
  lease?: string
  /** How many deliveries a message gets before it is dead: 1 to 1000000. Default 10. */
  max_attempts?: number
  /** How many messages of one key may be leased at once, on stores that can: 0 (no bound) to 1000000. Default 0. */
  max_key_leases?: number
  /** How many leases of one key may begin in a time, on stores that can: none, or a rate like 10/1s or 1000/1m,burst=5. Default none. */
  max_key_rate?: string
  /** How many messages may be leased at once, over all processes, on stores that can: 0 (no bound) to 1000000. Default 0. */
  max_leases?: number
  /** How many leases may begin in a time, over all processes, on stores that can: none, or a rate like 10/1s or 1000/1m,burst=5. Default none. */
  max_rate?: string
  /** Into how many parts the topic is divided, on stores that can; fixed once the topic exists: 1 to 256. Default 1. */
  partitions?: number
  /** Whether pushes are refused: true or false. Default false. */
  push_paused?: boolean
}

export interface SettleAnswer {
  results: Array<SettleResult>
}

export interface SettleBody {
  then?: Array<PushItem>
}

export interface SettleItem {
  at?: string
  at_local?: string
  due?: string
  error?: string
  id: string
  in?: string
  then?: Array<PushItem>
  token: string
  topic: string
  verb: 'ack' | 'retry' | 'snooze' | 'discard' | 'release' | 'extend'
  zone?: string
}

export interface SettleRequest {
  settlements: Array<SettleItem>
}

export interface SettleResult {
  error?: Problem
  id: string
  topic: string
}

export interface Space {
  free: number
  reserve: number
  total: number
}

export interface StreamLine {
  error?: Problem
  message?: Delivery
}

export interface Topic {
  dead: number
  leased: number
  next_due?: string
  ready: number
  scheduled: number
  settings: Settings
  topic: string
  waiting?: number
}

export interface Topics {
  topics: Array<Topic>
}

/** What each code of an error means, whether an operation with it certainly did not happen, and what to do. */
export const errorKinds = {
  indeterminate: { definite: false, meaning: "The operation may or may not have happened; repeat it with the same ID, or look.", remedy: "Repeat it with the same ID or request key, or look." },
  invalid: { definite: true, meaning: "An argument is malformed; the text says which and what to use instead.", remedy: "Mend the request; the detail says what." },
  too_large: { definite: true, meaning: "A body, header or batch is beyond its limit.", remedy: "Send less at a time; GET /v1 lists the limits." },
  unsupported: { definite: true, meaning: "This store does not have the operation.", remedy: "Use another way, or another store below the server." },
  not_found: { definite: true, meaning: "There is no such message or topic.", remedy: "It is finished, was removed, or never was; the detail says if it is something else." },
  duplicate: { definite: true, meaning: "The ID is already in use by a dead message, or by any message and the push asked to fail then.", remedy: "Use another ID, requeue the message if it is dead, or say if_exists=replace." },
  lease_lost: { definite: true, meaning: "The token is not the current one; somebody else may work on the message.", remedy: "Drop the work; another claim brings the message if it is still to be done." },
  cancelled: { definite: true, meaning: "The message was cancelled while leased; it ends with this attempt.", remedy: "Drop the work, or ack it." },
  leased: { definite: true, meaning: "Somebody works on the message; after a cancel no further attempt will be made.", remedy: "Somebody works on it: look again when that has ended." },
  not_dead: { definite: true, meaning: "Only a dead message can be requeued.", remedy: "Reschedule a message that is to be delivered." },
  changed: { definite: true, meaning: "The message is not due at the instant named any more, or the topic has other settings than those named; somebody changed them meanwhile.", remedy: "Read the message again, and decide anew." },
  paused: { definite: true, meaning: "The topic takes no messages for now.", remedy: "Let pushes in again with POST /v1/topics/TOPIC/resume." },
  closed: { definite: true, meaning: "The store, queue or worker was closed.", remedy: "Try again; the server is ending or starting anew." },
  overloaded: { definite: true, meaning: "Too much is under way; try again later.", remedy: "Try again after the time of Retry-After." },
  unreachable: { definite: true, meaning: "No server answers; the call was never sent, or only read.", remedy: "See that the storage below the server runs, then try again." },
  unauthenticated: { definite: true, meaning: "The server asks for credentials and got none that are valid.", remedy: "Send a valid token: Authorization: Bearer TOKEN." },
  forbidden: { definite: true, meaning: "The server does not let these credentials, or this origin, do it.", remedy: "Use credentials that may do this." },
  no_space: { definite: true, meaning: "The storage is nearly full; pushes are refused, acks and cancels pass.", remedy: "Free some space, or purge what is not needed; acks and cancels pass." },
  locked: { definite: true, meaning: "Another process owns the store.", remedy: "End the other owner of the store, or try again." },
  corrupt: { definite: true, meaning: "Stored data is damaged; nothing was skipped or repaired.", remedy: "Keep a copy of the storage as it is; a check lists what is wrong." },
  store_failed: { definite: true, meaning: "The storage failed earlier and the store has stopped; mend it and reopen.", remedy: "Mend the storage, then start the server again." },
  durability: { definite: true, meaning: "The server cannot give the durability asked for.", remedy: "See what the storage stands on with 'punctual doctor'." },
} as const

/** The codes of errors. canceled, deadline and internal are a server's own. */
export type ErrorCode = keyof typeof errorKinds | 'canceled' | 'deadline' | 'internal'
