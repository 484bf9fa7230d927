import type { Server } from 'node:http';
import { addressKind } from '../../lib/address-kind.ts';
import { networkOf } from '../../lib/network-of.ts';

/**
 * Closes connections of a network address beyond the bound, before a byte is read. Loopback addresses are not
 * counted, because a proxy on this machine connects from there for all its clients.
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
