import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { isIP } from 'node:net';
import { duplexPair, type Duplex } from 'node:stream';
import type { Egress } from '../../egress/egress.ts';

/** Connects as a program of a sandbox does that looks a name up and connects to what it was answered. */
export type Dial = (host: string, port: number) => Promise<Duplex>;

/** Plays the guest's part: asks for the name, and carries the connection. */
export function memoryEgress(egress: Egress | undefined, sandbox: SandboxId, gone: AbortSignal): Dial {
  return async (host, port) => {
    if (!egress) throw refused('ENETUNREACH', `Cannot connect to ${host}: there is no network`);
    const named = isIP(host) === 0;
    if (named && (await egress.lookup(sandbox, { name: host.toLowerCase() })).kind === 'absent')
      throw refused('ENOTFOUND', `Cannot resolve ${host}`);
    const [inner, outer] = duplexPair();
    const end = () => inner.destroy();
    gone.addEventListener('abort', end, { once: true });
    inner.once('close', () => gone.removeEventListener('abort', end));
    // The holder of either end need not listen for errors.
    inner.on('error', () => {});
    outer.on('error', () => {});
    inner.once('close', () => outer.destroy());
    return new Promise((resolve, reject) => {
      egress.connect(
        sandbox,
        { ...(named ? { name: host.toLowerCase() } : { address: host }), port },
        {
          duplex: outer,
          get heldBytes() {
            return outer.readableLength + outer.writableLength;
          },
          accept: () => resolve(inner),
          refuse(error) {
            inner.destroy(error);
            outer.destroy();
            reject(refused('ECONNRESET', `Cannot connect to ${host}:${port}: ${error.message}`));
          },
        },
      );
    });
  };
}

function refused(errno: string, message: string): CayError {
  return new CayError('unavailable', message, { details: { errno } });
}
