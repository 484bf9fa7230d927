/** A server that answers every request at once, with nothing. It sends its address to its parent. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';

const server = createServer((_request, response) => response.end('{}'));
server.listen(0, '127.0.0.1', () =>
  process.send!(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`),
);
process.on('disconnect', () => process.exit(0));
