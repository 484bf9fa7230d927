/** The part of the package "ssh2" that is used here. */
declare module 'ssh2' {
  import type { EventEmitter } from 'node:events';
  import type { Duplex, Readable, Writable } from 'node:stream';

  export interface ServerChannel extends Duplex {
    readonly stderr: Writable;
    exit(code: number): void;
  }

  export interface ClientChannel extends Duplex {
    readonly stderr: Readable;
    close(): void;
  }

  type Answer = (() => void) | undefined;

  export interface Session extends EventEmitter {
    on(
      event: 'env',
      listener: (accept: Answer, reject: Answer, info: { key: string; val: string }) => void,
    ): this;
    on(
      event: 'exec',
      listener: (accept: () => ServerChannel, reject: Answer, info: { command: string }) => void,
    ): this;
  }

  export interface Connection extends EventEmitter {
    on(event: 'authentication', listener: (context: { accept(): void }) => void): this;
    on(event: 'session', listener: (accept: () => Session, reject: () => void) => void): this;
    on(event: 'close', listener: () => void): this;
    on(event: 'error', listener: (error: Error) => void): this;
  }

  export class Server {
    constructor(
      options: { hostKeys: readonly string[]; ident?: string },
      listener: (connection: Connection) => void,
    );
    injectSocket(stream: Duplex): void;
  }

  export class Client extends EventEmitter {
    connect(options: {
      sock: Duplex;
      username: string;
      privateKey: string;
      readyTimeout: number;
      hostVerifier: (key: Buffer) => boolean;
    }): void;
    exec(
      command: string,
      options: { env: Record<string, string> },
      done: (error: Error | undefined, channel: ClientChannel) => void,
    ): void;
    end(): void;
  }

  const ssh2: { Server: typeof Server; Client: typeof Client };
  export default ssh2;
}
