// The part of Node's interface that node.ts uses, so that the package is built without @types/node.
declare module 'node:http' {
  export class Agent { constructor (options: object); destroy (): void }
  export function request (options: object, onAnswer: (answer: any) => void): any
}
declare module 'node:https' {
  export { request } from 'node:http'
  export class Agent { constructor (options: object); destroy (): void }
}
declare module 'node:fs' { export function readFileSync (path: string, encoding: string): string }
declare module 'node:crypto' { export const webcrypto: Crypto }
declare module 'node:os' { export function hostname (): string }
declare module 'node:child_process' { export function spawn (program: string, args: string[], options: object): any }
declare const process: {
  pid: number
  env: Record<string, string | undefined>
  once: (signal: string, f: () => void) => void
  off: (signal: string, f: () => void) => void
}
