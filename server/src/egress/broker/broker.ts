/**
 * The broker puts secrets on requests outside the sandbox. Inside, a *placeholder* stands for a secret: it is
 * replaced in requests to the names whose rules say so, and a request that carries it anywhere else is
 * refused.
 */
import type { Put } from '@cay/sdk/protocol';
import type { Header } from '../http/exchange.ts';

export interface BrokeredSecret {
  readonly name: string;
  /** What stands for it inside. Long, random, and of this sandbox alone. */
  readonly placeholder: string;
  readonly value: string;
}

/** A request as it leaves, with what is needed to keep its secrets out of the answer. */
export interface Brokered {
  readonly target: string;
  readonly headers: readonly Header[];
  /** Whether the body has to be known before the headers are. */
  readonly collect: boolean;
  finishHead(body: Buffer): readonly Header[];
  /** Looks at a piece of the body. Throws a `Denial` if a placeholder is in it. */
  scan(chunk: Buffer): void;
  maskHeader(value: string): string;
  maskBody(chunk: Buffer, last: boolean): Buffer;
}

export interface BrokerRequest {
  readonly method: string;
  /** The name and port as Host is written. */
  readonly authority: string;
  readonly target: string;
  readonly headers: readonly Header[];
  readonly secure: boolean;
  readonly puts: readonly Put[];
  readonly secrets: readonly BrokeredSecret[];
}
