/** TLS that is spoken from inside the sandbox, over a relay of the prober. */
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import type { CaseWorld } from './enforcement-case.ts';

const HANDSHAKE_MS = 4000;
const ANSWER_MS = 2500;
const BETWEEN_PIECES_MS = 20;

/** A handshake with the target under a name. A string says why there is none. */
export async function handshake(
  { probe, target }: CaseWorld,
  name: string,
  options: ConnectionOptions = {},
): Promise<TLSSocket | string> {
  const end = await probe.relay(name, target.port);
  if (typeof end === 'string') return end;
  return new Promise((resolve) => {
    const socket = connect({ servername: name, ...options, socket: end, rejectUnauthorized: false });
    const timer = setTimeout(() => done('no answer'), HANDSHAKE_MS);
    function done(result: TLSSocket | string): void {
      clearTimeout(timer);
      if (typeof result === 'string') socket.destroy();
      resolve(result);
    }
    socket.on('error', (error) => done(error.message.slice(0, 80)));
    socket.once('close', () => {
      end.destroy();
      done('closed');
    });
    socket.once('secureConnect', () => done(socket));
  });
}

/** Sends bytes piece by piece, and says what came back first. */
export async function sendPieces(
  { probe, target }: CaseWorld,
  name: string,
  pieces: readonly Buffer[],
): Promise<string> {
  const end = await probe.relay(name, target.port);
  if (typeof end === 'string') return end;
  const answer = new Promise<string>((resolve) => {
    setTimeout(() => resolve('no answer'), ANSWER_MS).unref();
    end.once('data', (chunk: Buffer) => resolve(chunk[0] === 0x15 ? 'an alert' : 'an answer'));
    end.once('end', () => resolve('closed')).once('close', () => resolve('closed'));
  });
  for (const piece of pieces) {
    if (!end.destroyed) end.write(piece);
    await sleep(BETWEEN_PIECES_MS);
  }
  const said = await answer;
  end.destroy();
  return said;
}
