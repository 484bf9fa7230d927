import type { Duplex } from 'node:stream';
import type { SandboxId } from '@cay/sdk/protocol';
import type { Clock } from '../../lib/clock.ts';
import type { Resolver } from '../../lib/name-resolver.ts';
import type { Brokered, BrokeredSecret, BrokerRequest } from '../broker/broker.ts';
import type { HttpConnection } from '../http/exchange.ts';
import type { KnownAddress } from '../policy/decide.ts';
import type { SshProxy } from '../ssh/ssh-proxy.ts';
import type { Ask } from '../sandbox-egress.ts';
import type { ClientHello } from '../wire/client-hello.ts';
import type { UpstreamProxy } from './upstream-proxy.ts';

export interface EgressTimeouts {
  readonly connectMs: number;
  /** For the first bytes of a connection whose requests have to be seen. */
  readonly firstBytesMs: number;
  readonly idleMs: number;
  readonly totalMs: number;
  readonly askMs: number;
}

/** How the server ends TLS of a sandbox and begins its own to the target. */
export interface TlsTermination {
  /**
   * Takes over a stream that begins with this hello. The name is the one that the hello asks for. `dial` is
   * absent if every request is to be refused.
   */
  take(
    stream: Duplex,
    name: string,
    hello: ClientHello,
    connection: HttpConnection,
    dial: (() => Promise<Duplex>) | undefined,
  ): Promise<void>;
}

/** What all connections share. */
export interface Engine {
  readonly clock: Clock;
  readonly timeouts: EgressTimeouts;
  readonly resolver: Resolver;
  readonly classify: (address: string) => KnownAddress;
  readonly proxy: UpstreamProxy | undefined;
  readonly ask: Ask | undefined;
  readonly http1: (stream: Duplex, connection: HttpConnection) => void;
  readonly http2: (stream: Duplex, connection: HttpConnection) => void;
  readonly tls: TlsTermination | undefined;
  readonly ssh: SshProxy | undefined;
  readonly secrets: (sandbox: SandboxId) => readonly BrokeredSecret[];
  readonly broker: (request: BrokerRequest) => Brokered;
}
