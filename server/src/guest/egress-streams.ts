/** Serves the lookups and the connections of a sandbox's programs, which its guest carries. */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { isIP } from 'node:net';
import type { CarriedStream, Egress, EgressTarget } from '../egress/egress.ts';
import { ignoreFailure, inBackground } from '../lib/in-background.ts';
import { CarriedDuplex } from './carried-duplex.ts';
import type { CborMap } from './cbor.ts';
import { int } from './parse.ts';
import type { GuestStream } from './stream.ts';
import type { StreamHandlers } from './streams-of-guest.ts';
import { violation } from './violation.ts';

/** What decides and connects, and for whom. */
export interface EgressOfGuest {
  readonly egress: Egress;
  /** Undefined while the guest belongs to no sandbox yet: then nothing is reached. */
  sandbox(): SandboxId | undefined;
}

/** The guest has no more waiting at once. */
const MAX_LOOKUPS = 512;
const MAX_PORTS = 32;
const MAX_NAME = 253;
const NAME = /^[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*$/;
const MAX_PROCESS = 64;

export function egressStreams({ egress, sandbox }: EgressOfGuest): StreamHandlers {
  let lookups = 0;

  async function lookUp(name: string, stream: GuestStream): Promise<void> {
    lookups++;
    try {
      const id = sandbox();
      const answer = id === undefined ? ({ kind: 'absent' } as const) : await egress.lookup(id, { name });
      if (stream.failure) return;
      const ports =
        answer.kind === 'address'
          ? {
              ports: answer.ports.slice(0, MAX_PORTS),
              ...(answer.udpPorts?.length && { udpPorts: answer.udpPorts.slice(0, MAX_PORTS) }),
            }
          : {};
      // Both leave in one write, and the guest wakes up once.
      const sent = stream.send({ kind: answer.kind, ...ports });
      if (sent) await sent;
      stream.end();
    } catch (error) {
      stream.reset(asCayError(error, 'The lookup failed'));
    } finally {
      lookups--;
    }
  }

  function open(how: 'connect' | 'datagrams', request: CborMap, stream: GuestStream): void {
    const target = targetOf(request);
    const carried = carry(stream);
    const id = sandbox();
    if (id === undefined)
      return carried.refuse(new CayError('unavailable', 'The guest belongs to no sandbox yet'));
    try {
      egress[how](id, target, carried);
    } catch (error) {
      carried.refuse(asCayError(error, 'The connection failed'));
    }
  }

  return {
    lookup(request, stream) {
      const name = nameOf(request);
      if (lookups >= MAX_LOOKUPS) throw violation(`the guest has more than ${MAX_LOOKUPS} lookups waiting`);
      inBackground(lookUp(name, stream), ignoreFailure);
    },

    egress: (request, stream) => open('connect', request, stream),
    datagrams: (request, stream) => open('datagrams', request, stream),
  };
}

function carry(stream: GuestStream): CarriedStream {
  const duplex = new CarriedDuplex(stream);
  const carried: CarriedStream = {
    duplex,
    get heldBytes() {
      return duplex.heldBytes;
    },
    accept() {
      // Sent at once, because nothing was sent before; a stream that is over has no use for it.
      inBackground(Promise.resolve(stream.send({})), ignoreFailure);
    },
    refuse(error) {
      duplex.destroy(asCayError(error, 'The connection was refused'));
    },
  };
  duplex.onArrived = (bytes) => carried.onArrived?.(bytes);
  stream.mayWiden = () => carried.mayWiden?.() ?? true;
  return carried;
}

function asCayError(error: unknown, what: string): CayError {
  return error instanceof CayError ? error : new CayError('internal', what, { cause: error });
}

/** The guest refuses what no host name is by itself. */
function nameOf(request: CborMap): string {
  const name = request['name'];
  if (typeof name !== 'string' || name.length > MAX_NAME || !NAME.test(name))
    throw violation('"name" is not a host name in lower case');
  return name;
}

function targetOf(request: CborMap): EgressTarget {
  const port = int(request, 'port', 1, 65_535);
  const said = request['process'];
  const isPlain = typeof said === 'string' && said.length <= MAX_PROCESS && /^[\x20-\x7e]+$/.test(said);
  const process = isPlain ? { process: said } : {};
  const address = request['address'];
  if (address === undefined) return { name: nameOf(request), port, ...process };
  if (typeof address !== 'string' || address.length > 45 || isIP(address) === 0)
    throw violation('"address" is not an IP address');
  return { address, port, ...process };
}
