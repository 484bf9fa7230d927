import { CayError } from '@cay/sdk/protocol';
import { bytesOf, call, firstMessage, iterate, type Reach } from './call.ts';
import type { CborMap } from './cbor.ts';
import type { PortEvent, Ports } from './guest.ts';
import { parsePorts } from './parse.ts';

export function guestPorts(reach: Reach): Ports {
  return {
    async connect(port, options) {
      const stream = (await reach(options)).open('connect', { port }, { signal: options?.signal });
      await firstMessage(stream);
      stream.lasts();
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

    list: (options) => call(reach, { op: 'ports', request: { watch: false }, options }, (answer) => parsePorts(answer, 'opened')),

    watch: (options) =>
      iterate(
        async () => {
          const stream = (await reach(options)).open('ports', { watch: true }, { signal: options?.signal, half: true });
          stream.lasts();
          return stream;
        },
        (item) => (item.message ? portEvents(item.message) : []),
      ),
  };
}

function portEvents(message: CborMap): PortEvent[] {
  return [
    ...parsePorts(message, 'closed').map((port): PortEvent => ({ type: 'closed', ...port })),
    ...parsePorts(message, 'opened').map((port): PortEvent => ({ type: 'opened', ...port })),
  ];
}
