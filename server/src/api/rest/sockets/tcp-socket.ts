import { CayError } from '@cay/sdk/protocol';
import type { WebSocket } from 'ws';
import type { Connection } from '../../../guest/guest.ts';
import { closeWith, receive, send, signalOf } from './socket-flow.ts';
import type { SocketContext } from './sockets.ts';

/**
 * A byte stream to a port in a sandbox, over a WebSocket: binary messages in both directions, whose
 * boundaries have no meaning. The text message `{"end":true}` ends the client's side alone. The socket closes
 * when the other side has ended.
 */
export async function tcpSocket(
  socket: WebSocket,
  { control, principal, ref }: SocketContext,
  port: number,
): Promise<void> {
  const signal = signalOf(socket);
  const opened = Promise.withResolvers<Connection>();
  // A rejection without a reader must not count as unhandled.
  opened.promise.catch(() => {});
  receive(
    socket,
    async (data, binary) => {
      const connection = await opened.promise;
      if (binary) return connection.write(data);
      if (data.toString() !== '{"end":true}')
        throw new CayError('invalid_argument', 'The only text message is {"end":true}');
      return connection.end();
    },
    (error) => closeWith(socket, error),
  );
  try {
    const { guest } = await control.enter(principal, ref);
    await using connection = await guest.ports.connect(port, { signal });
    opened.resolve(connection);
    for await (const data of connection.readable) {
      if (socket.readyState !== socket.OPEN) return;
      await send(socket, data);
    }
    if (socket.readyState === socket.OPEN) socket.close(1000);
  } catch (error) {
    opened.reject(error);
    closeWith(socket, error);
  }
}
