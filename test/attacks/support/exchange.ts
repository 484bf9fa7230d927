import { connect } from 'node:net';

export interface Exchange {
  /** Of the first answer; undefined if there was none. */
  status: number | undefined;
  text: string;
  /** Whether the other side hung up. */
  closed: boolean;
  ms: number;
}

export interface ExchangeOptions {
  host: string;
  port: number;
  /** How long an answer is waited for. */
  timeoutMs?: number;
  /** Ends when nothing more has come for so long after an answer has begun. */
  quietMs?: number;
  /** The address to come from. */
  from?: string;
}

/**
 * Sends bytes on a connection of their own and reads what comes back: until it is closed, or quiet, or the
 * time is up.
 */
export function exchange(
  bytes: string | Uint8Array,
  { host, port, timeoutMs = 3_000, quietMs = 25, from }: ExchangeOptions,
): Promise<Exchange> {
  return new Promise((resolve) => {
    const began = performance.now();
    const chunks: Buffer[] = [];
    let quiet: NodeJS.Timeout | undefined;
    const socket = connect({ host, port, ...(from !== undefined && { localAddress: from }) }, () => {
      socket.write(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes);
    });
    const done = (closed: boolean) => {
      clearTimeout(timer);
      clearTimeout(quiet);
      socket.destroy();
      const text = Buffer.concat(chunks).toString('latin1');
      const status = /^HTTP\/1\.1 (\d+)/.exec(text)?.[1];
      resolve({
        status: status === undefined ? undefined : Number(status),
        text,
        closed,
        ms: performance.now() - began,
      });
    };
    const timer = setTimeout(() => done(false), timeoutMs);
    socket.on('data', (chunk) => {
      chunks.push(chunk);
      clearTimeout(quiet);
      quiet = setTimeout(() => done(false), quietMs);
    });
    // A connection that is reset is an answer too.
    socket.on('error', () => done(true)).on('close', () => done(true));
  });
}
