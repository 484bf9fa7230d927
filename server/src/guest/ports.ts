import { CayError } from '@cay/sdk/protocol';
import { bytesOf, call, iterate, promptMessage, type Reach } from './call.ts';
import type { CborMap } from './cbor.ts';
import type { ListeningPort, PortEvent, Ports } from './guest.ts';
import { parsePorts } from './parse.ts';

/** More than a guest ever reports. */
const MAX_KNOWN = 8_192;

export function guestPorts(reach: Reach): Ports {
  return {
    async connect(port, options) {
      const op = options?.datagrams ? 'connect-datagrams' : 'connect';
      const stream = (await reach(options)).open(op, { port }, { signal: options?.signal });
      await promptMessage(stream, op);
      stream.markLongLived();
      return {
        readable: bytesOf(stream),
        async write(data) {
          await stream.write(data);
          await stream.room();
        },
        async end() {
          stream.end();
        },
        async [Symbol.asyncDispose]() {
          if (!stream.over) stream.reset(new CayError('cancelled', 'The connection was closed'));
        },
      };
    },

    list: (options) =>
      call(reach, { op: 'ports', request: { watch: false }, options }, (answer) =>
        parsePorts(answer, 'opened'),
      ),

    watch(options) {
      const known = new Map<string, ListeningPort>();
      let fresh = true;
      return iterate(
        async () => {
          const stream = (await reach(options)).open(
            'ports',
            { watch: true },
            { signal: options?.signal, half: true },
          );
          stream.markLongLived();
          fresh = true;
          return stream;
        },
        (item) => {
          if (!item.message) return [];
          const events = portEvents(item.message, known, fresh);
          fresh = false;
          return events;
        },
        () => [],
      );
    },
  };
}

/** The changes since the last message. The first message of a stream lists all open ports. */
function portEvents(message: CborMap, known: Map<string, ListeningPort>, fresh: boolean): PortEvent[] {
  const opened = new Map(parsePorts(message, 'opened').map((port) => [`${port.address} ${port.port}`, port]));
  const gone = new Set(parsePorts(message, 'closed').map((port) => `${port.address} ${port.port}`));
  const events: PortEvent[] = [];
  for (const [key, port] of [...known]) {
    if (!gone.has(key) && !(fresh && !opened.has(key))) continue;
    known.delete(key);
    events.push({ type: 'closed', ...port });
  }
  for (const [key, port] of opened) {
    if (known.has(key) || known.size >= MAX_KNOWN) continue;
    known.set(key, port);
    events.push({ type: 'opened', ...port });
  }
  return events;
}
