/** A program in a sandbox, as the egress sees it: a stream that a guest has opened. Made in this process. */
import { type Duplex, duplexPair } from 'node:stream';
import { type CayError, newId, type SandboxId } from '@cay/sdk/protocol';
import { addressKind } from '../../lib/address-kind.ts';
import type { EgressTarget } from '../egress.ts';
import { type EgressOptions, openEgress, type OpenedEgress } from '../open-egress.ts';
import type { KnownAddress } from '../policy/decide.ts';

export interface Program {
  /** The program's end of the connection. */
  readonly socket: Duplex;
  /** When the guest was told that the connection is made. */
  readonly accepted: Promise<void>;
  /** The error with which it was refused. */
  readonly refused: Promise<CayError>;
}

export interface World {
  readonly egress: OpenedEgress;
  readonly sandbox: SandboxId;
  /** Names and their addresses; tests change it. */
  readonly names: Map<string, string[]>;
  /** Names that were looked up, in order. */
  readonly resolved: string[];
  connect(target: EgressTarget): Program;
  /** A flow of datagrams, framed as a guest does it. */
  datagrams(target: EgressTarget): Program;
}

/** Loopback stands for the internet in tests, except 127.0.0.9, which stands for loopback. */
export function testClassify(address: string): KnownAddress {
  const kind = addressKind(address);
  return { address, own: false, kind: kind === 'loopback' && address !== '127.0.0.9' ? 'public' : kind };
}

export function openWorld(options: EgressOptions = {}): World {
  const names = new Map<string, string[]>();
  const resolved: string[] = [];
  const egress = openEgress({
    classify: testClassify,
    resolver: {
      async resolve(name) {
        resolved.push(name);
        const addresses = names.get(name);
        if (!addresses) throw new Error('no such name');
        return addresses;
      },
    },
    ...options,
  });
  const sandbox = newId('sbx');
  return {
    egress,
    sandbox,
    names,
    resolved,
    connect: (target) => openProgram(egress, sandbox, target),
    datagrams: (target) => openProgram(egress, sandbox, target, 'datagrams'),
  };
}

export function openProgram(
  egress: OpenedEgress,
  sandbox: SandboxId,
  target: EgressTarget,
  how: 'connect' | 'datagrams' = 'connect',
): Program {
  const [socket, duplex] = duplexPair();
  const accepted = Promise.withResolvers<void>();
  const refused = Promise.withResolvers<CayError>();
  socket.on('error', () => {});
  // A pair of streams does not tell one end that the other is gone, as a guest does.
  socket.once('close', () => duplex.destroy());
  egress[how](sandbox, target, {
    duplex,
    accept: accepted.resolve,
    get heldBytes() {
      return duplex.readableLength + duplex.writableLength;
    },
    refuse(error) {
      refused.resolve(error as CayError);
      duplex.destroy();
      socket.destroy(error);
    },
  });
  return { socket, accepted: accepted.promise, refused: refused.promise };
}

/** All that a stream says until it ends. */
export async function textOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}
