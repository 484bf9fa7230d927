import { CayError } from '@cay/sdk/protocol';
import type { Connection, ListeningPort, PortEvent, Ports } from '../../guest/guest.ts';
import { Broadcast } from '../../lib/broadcast.ts';
import { BrokenPipe, bytePipe } from './byte-pipe.ts';
import type { Gate } from './gate.ts';
import type { Incoming } from './program.ts';

export interface MemoryPorts extends Ports {
  /** Listens until the function that it gives is called. */
  listen(at: ListeningPort, handler: (connection: Incoming) => Promise<void>): () => void;
}

export function memoryPorts(gone: AbortSignal, gate: Gate): MemoryPorts {
  const listening = new Map<
    number,
    ListeningPort & { handler: (connection: Incoming) => Promise<void>; open: Set<() => void> }
  >();
  const events = new Broadcast<PortEvent>();
  const now = (): ListeningPort[] => [...listening.values()].map(({ port, address }) => ({ port, address }));
  gone.addEventListener('abort', () => events.close(), { once: true });

  async function begin(signal: AbortSignal | undefined): Promise<void> {
    await gate.pass(gone, signal);
    if (gone.aborted) throw gone.reason;
    if (signal?.aborted) throw new CayError('cancelled', 'The caller gave up', { cause: signal.reason });
  }

  return {
    listen({ port, address }, handler) {
      checkPort(port);
      if (listening.has(port))
        throw new CayError('already_exists', `Cannot listen on port ${port}: it is in use`, {
          details: { errno: 'EADDRINUSE' },
        });
      const open = new Set<() => void>();
      listening.set(port, { port, address, handler, open });
      events.send({ type: 'opened', port, address });
      return () => {
        if (!listening.delete(port)) return;
        for (const close of open) close();
        events.send({ type: 'closed', port, address });
      };
    },

    async connect(port, { signal, datagrams } = {}) {
      await begin(signal);
      checkPort(port);
      if (datagrams) throw new CayError('unsupported', 'Programs in memory have no ports for UDP');
      const listener = listening.get(port);
      if (!listener)
        throw new CayError('unavailable', `Cannot connect to port ${port}: no program listens there`, {
          details: { errno: 'ECONNREFUSED' },
        });
      const inward = bytePipe();
      const outward = bytePipe();
      const close = () => {
        inward.close();
        outward.end();
        listener.open.delete(close);
      };
      listener.open.add(close);
      const incoming: Incoming = {
        readable: gate.through(inward, gone),
        async write(data) {
          await gate.pass(gone);
          await outward.write(Buffer.from(data));
        },
        end: async () => outward.end(),
      };
      // A handler that fails has closed its connection; that is all the other side may see of it.
      listener.handler(incoming).then(close, close);
      const connection: Connection = {
        readable: outward,
        async write(data) {
          await gate.pass(gone);
          try {
            await inward.write(data);
          } catch (error) {
            if (error instanceof BrokenPipe)
              throw new CayError('unavailable', `Cannot write to port ${port}: the connection is closed`);
            throw error;
          }
        },
        end: async () => inward.end(),
        async [Symbol.asyncDispose]() {
          outward.close();
          close();
        },
      };
      return connection;
    },

    async list({ signal } = {}) {
      await begin(signal);
      return now();
    },

    watch(options = {}) {
      const changes = events.subscribe(options);
      const first = now().map((at): PortEvent => ({ type: 'opened', ...at }));
      return {
        [Symbol.asyncIterator]: () => ({
          next: async () => {
            if (gone.aborted) throw gone.reason;
            const value = first.shift();
            return value ? { done: false as const, value } : changes.next();
          },
          return: () => changes.return!(),
        }),
      };
    },
  };
}

function checkPort(port: number): void {
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw new CayError('invalid_argument', `Port ${port} must be from 1 to 65535`);
}
