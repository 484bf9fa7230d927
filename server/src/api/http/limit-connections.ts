import type { Server } from 'node:http';
import { addressKind } from '../../lib/address-kind.ts';
import { networkOf } from '../../lib/network-of.ts';

/**
 * Hangs up on an address of the network that holds more connections open than that, before a byte of them is
 * read. Those of this machine are not counted: a proxy comes from there for everybody.
 */
export function limitConnections(server: Server, mostOfOneAddress: number): void {
  const open = new Map<string, number>();
  server.on('connection', (socket) => {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined || addressKind(remoteAddress) === 'loopback') return;
    const address = networkOf(remoteAddress);
    const count = (open.get(address) ?? 0) + 1;
    open.set(address, count);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
    if (count > mostOfOneAddress) socket.destroy();
  });
}
