/**
 * What a carried connection is to the proxies that read requests on it. Each request is an exchange: checked,
 * changed if secrets go on it, forwarded, recorded.
 */
import type { Duplex } from 'node:stream';
import { HOP_BY_HOP } from '../../lib/hop-by-hop.ts';
import type { OpenAttempt } from '../attempts.ts';
import type { Direction } from '../carrier/budget.ts';
import type { Denial } from '../carrier/denial.ts';
import type { Buffers } from '../carrier/holding.ts';
import type { DenialPage } from './denial-page.ts';

export type Header = readonly [name: string, value: string];

export interface RequestFacts {
  readonly method: string;
  /** The path with its query, as it was sent. */
  readonly target: string;
  /** The values of Host or of `:authority`. */
  readonly authorities: readonly string[];
  /** All but Host and those that are about one connection alone. */
  readonly headers: readonly Header[];
}

/** A request that may go on. */
export interface Exchange {
  /** As Host is written. */
  readonly authority: string;
  readonly target: string;
  readonly headers: readonly Header[];
  /**
   * Whether the body has to be collected before the headers are known; then `finishHead` is called with it.
   */
  readonly collect: boolean;
  finishHead(body: Buffer): readonly Header[];
  readonly attempt: OpenAttempt;
  /** Counts and checks bytes of the body; answers for how long to wait. Throws a `Denial`. */
  spend(direction: Direction, chunk: Buffer): number;
  /** Hides secrets in what comes back. */
  maskHeader(value: string): string;
  maskBody(chunk: Buffer, last: boolean): Buffer;
  /** Ends the record. */
  end(denial?: Denial): void;
}

export interface HttpConnection {
  readonly secure: boolean;
  /** Connects, or reconnects, to the target. */
  dial(): Promise<Duplex>;
  /** Throws a `Denial`; it is recorded then. */
  begin(facts: RequestFacts): Exchange;
  pageOf(denial: Denial, accept: string | undefined): DenialPage;
  /** Notes that bytes went either way. */
  touch(): void;
  /** Counts what these keep as held for the connection, until the result is called. */
  hold(buffers: Buffers): () => void;
}

/** Headers that are about one connection, and so are not forwarded. */
const NOT_FORWARDED = new Set([...HOP_BY_HOP, 'expect', 'http2-settings']);

/** Pairs of the flat list that Node gives, without those of the connection. */
export function endToEnd(raw: readonly string[]): Header[] {
  const pairs: Header[] = [];
  const named = new Set<string>();
  for (let index = 0; index + 1 < raw.length; index += 2) {
    pairs.push([raw[index]!, raw[index + 1]!]);
    if (raw[index]!.toLowerCase() === 'connection')
      for (const name of raw[index + 1]!.split(',')) named.add(name.trim().toLowerCase());
  }
  // A sender cannot name these as its own to have them dropped.
  for (const kept of ['host', 'content-length', 'authorization']) named.delete(kept);
  return pairs.filter(([name]) => {
    const lower = name.toLowerCase();
    return !NOT_FORWARDED.has(lower) && !named.has(lower);
  });
}
