/**
 * A port of the machine that takes datagrams for a port of a sandbox. What one client sends is a *flow*: a
 * connection to the guest, which has a socket of its own for it, so that the answers go to that client.
 *
 * Who sends a datagram can forge where it comes from, so everything is bounded: flows, what waits for each,
 * and how many datagrams it carries. What is beyond is lost, as networks lose datagrams.
 */
import { createSocket, type RemoteInfo } from 'node:dgram';
import type { SandboxId } from '@cay/sdk/protocol';
import type { Connection } from '../../guest/guest.ts';
import { Allowance } from '../../lib/allowance.ts';
import { DatagramReader, frameDatagram, MAX_DATAGRAM } from '../../lib/datagram-frames.ts';
import { ignoreFailure, inBackground } from '../../lib/in-background.ts';
import { cannotListen, type ConnectInside, type HostListener } from './host-listener.ts';

/** Through one port of the machine, at once. The one that was idle for longest ends for a new one. */
const MAX_FLOWS = 256;
const IDLE_MS = 60_000;
/** What a flow sends while its sandbox wakes, or while the guest does not read. */
const MAX_WAITING_BYTES = 64 * 1024;
const DATAGRAMS = { burst: 1000, perSecond: 5000 };
/** New flows: each is a question to the control plane, and can wake a sandbox. */
const FLOWS = { burst: 256, perSecond: 100 };

interface Flow {
  send(datagram: Buffer): void;
  end(): void;
}

export function listenForDatagrams(
  { sandbox, address, hostPort }: { sandbox: SandboxId; address: string; hostPort: number },
  connect: ConnectInside,
): Promise<HostListener> {
  const socket = createSocket(address.includes(':') ? { type: 'udp6', ipv6Only: true } : { type: 'udp4' });
  /** By client, the one that was idle for longest first. */
  const flows = new Map<string, Flow>();
  const mayBegin = new Allowance(FLOWS);

  function begin(client: string, { address: to, port }: RemoteInfo): Flow {
    for (const [oldest, flow] of flows) {
      if (flows.size < MAX_FLOWS) break;
      flow.end();
      flows.delete(oldest);
    }
    const flow = openFlow(connect, {
      answer: (datagram) => socket.send(datagram, port, to, ignoreFailure),
      ended: () => {
        if (flows.get(client) === flow) flows.delete(client);
      },
    });
    return flow;
  }

  socket.on('message', (datagram, from) => {
    if (datagram.length > MAX_DATAGRAM) return;
    const client = `${from.address} ${from.port}`;
    let flow = flows.get(client);
    if (!flow && !mayBegin.take()) return;
    flow ??= begin(client, from);
    flows.delete(client);
    flows.set(client, flow);
    flow.send(datagram);
  });
  return new Promise((resolve, reject) => {
    socket.once('error', (cause: NodeJS.ErrnoException) => {
      socket.close();
      reject(cannotListen(address, hostPort, cause));
    });
    socket.bind({ address, port: hostPort, exclusive: true }, () => {
      socket.removeAllListeners('error').on('error', ignoreFailure);
      resolve({
        sandbox,
        hostPort,
        close() {
          for (const flow of flows.values()) flow.end();
          flows.clear();
          socket.close();
        },
      });
    });
  });
}

/** Begins to connect at once. */
function openFlow(
  connect: ConnectInside,
  { answer, ended }: { answer(datagram: Buffer): void; ended(): void },
): Flow {
  const gone = new AbortController();
  const allowed = { out: new Allowance(DATAGRAMS), in: new Allowance(DATAGRAMS) };
  let inside: Connection | undefined;
  let waiting: Buffer[] = [];
  let waitingBytes = 0;
  let sending = false;
  const idle = setTimeout(end, IDLE_MS).unref();

  function end(): void {
    clearTimeout(idle);
    gone.abort();
    ended();
  }
  async function send(to: Connection): Promise<void> {
    sending = true;
    while (waiting.length > 0 && !gone.signal.aborted) {
      const bytes = Buffer.concat(waiting);
      waiting = [];
      waitingBytes = 0;
      await to.write(bytes);
    }
    sending = false;
  }
  async function carry(): Promise<void> {
    await using connection = await connect(gone.signal);
    using _counted = connection;
    const onGone = () => inBackground(Promise.resolve(connection[Symbol.asyncDispose]()), ignoreFailure);
    gone.signal.addEventListener('abort', onGone, { once: true });
    if (gone.signal.aborted) return;
    inside = connection;
    inBackground(send(connection), end);
    const reader = new DatagramReader();
    for await (const chunk of connection.readable)
      for (const datagram of reader.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.length))) {
        idle.refresh();
        // The bytes may be lent for this turn alone, and the system sends them later.
        if (allowed.in.take()) answer(Buffer.from(datagram));
      }
  }
  inBackground(
    carry().finally(end),
    // A sandbox that cannot be reached loses the datagram. The next one tries again.
    ignoreFailure,
  );
  return {
    send(datagram) {
      const framed = frameDatagram(datagram);
      if (!allowed.out.take() || waitingBytes + framed.length > MAX_WAITING_BYTES) return;
      idle.refresh();
      waiting.push(framed);
      waitingBytes += framed.length;
      if (inside && !sending) inBackground(send(inside), end);
    },
    end,
  };
}
