import type { SandboxId } from '@cay/sdk/protocol';
import type { Duplex } from 'node:stream';

/**
 * Egress: how programs of a sandbox, which has no network card, reach the network outside.
 *
 * *Terms.* A program inside looks up a name. The guest answers with an address that stands for that name. The
 * program connects to it, the guest accepts, and opens a *carried connection*: a stream to the server that
 * says which name and port was meant. The server checks the *network policy* of the sandbox for that name,
 * resolves the name once, connects to that very address, and copies bytes both ways. What the guest says is
 * hostile: it can name anything, and gets nothing that the policy does not allow.
 *
 * *Who calls.* Guest connections of every backend, for each lookup and each connection that a guest opens. A
 * backend is given an `Egress` when it is opened and knows nothing of policies.
 *
 * *Concurrency.* Any number of calls at a time. The driver bounds connections, lookups and bytes per sandbox.
 *
 * *Errors.* `lookup` never rejects: a name that is refused has an answer too. `connect` takes over the
 * stream, and ends it with a RESET that carries a `CayError`: `permission_denied` if the policy refuses it,
 * `unavailable` if the target does not answer, `resource_exhausted` beyond a limit.
 *
 * *Cost.* A lookup is one evaluation of a policy in memory, without DNS: the host resolves when it connects.
 *
 *     const egress = openEgress({ … });
 *     egress.policies.set(sandbox, policy);          // by the control plane, before the sandbox starts
 *     await egress.lookup(sandbox, { name: 'api.example.org' });   // { kind: 'address', ports: [80, 443] }
 *     egress.connect(sandbox, { name: 'api.example.org', port: 443 }, stream);
 */
export interface Egress {
  lookup(sandbox: SandboxId, query: EgressLookup): Promise<EgressLookupAnswer>;
  /** Takes over the stream at once, and never throws. */
  connect(sandbox: SandboxId, target: EgressTarget, stream: CarriedStream): void;
  /**
   * The same for a flow of datagrams, from one socket of a program to one target. The stream has them one
   * after the other, as `lib/datagram-frames.ts` writes them. It ends when the flow is idle; a RESET says
   * that it is refused.
   */
  datagrams(sandbox: SandboxId, target: EgressTarget, stream: CarriedStream): void;
  /** Of the authority that programs in sandboxes have to trust, in PEM. Absent: TLS is never terminated. */
  readonly certificate?: string | undefined;
}

export interface EgressLookup {
  /** In lower case, without a dot at the end: labels of 1 to 63 of `a-z0-9-_`, at most 253 bytes in all. */
  readonly name: string;
}

export type EgressLookupAnswer =
  /**
   * The guest gives an address that stands for the name. It accepts connections to these ports of it; where
   * it can accept any port it does. A name that is denied is given an address too if a connection can be
   * answered with an explanation (80 and 443).
   */
  | {
      readonly kind: 'address';
      readonly ports: readonly number[];
      /** Ports that datagrams may be sent to. The guest takes none for any other. */
      readonly udpPorts?: readonly number[] | undefined;
      /** Whether ports beyond these may be allowed too, more than can be listed. */
      readonly anyPort?: boolean | undefined;
    }
  /** There is no such name for this sandbox. */
  | { readonly kind: 'absent' };

export interface EgressTarget {
  /**
   * The name whose address the program connected to. Absent if it connected to an address of its own choice.
   */
  readonly name?: string | undefined;
  /** The address, IPv4 or IPv6, if there is no name. */
  readonly address?: string | undefined;
  readonly port: number;
  /** The process that connects, as far as the guest knows. For the log alone. */
  readonly process?: string | undefined;
}

/** A stream that the guest has opened: bytes both ways, with flow control. */
export interface CarriedStream {
  readonly duplex: Duplex;
  /** Tells the guest that the connection is made. Bytes may be sent before. */
  accept(): void;
  /** Ends the stream in both directions with an error. The guest resets the program's connection. */
  refuse(error: Error): void;
  /** Bytes of this stream that are kept here, those that came and those that were not sent yet. */
  readonly heldBytes: number;
  /** Called with the number of bytes that have just come from the guest. */
  onArrived?: ((bytes: number) => void) | undefined;
  /** Asked once, when the stream has carried much: whether the guest may send more ahead. Absent: it may. */
  mayWiden?: (() => boolean) | undefined;
}
