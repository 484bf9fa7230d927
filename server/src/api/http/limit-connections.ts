import type { Server } from 'node:http';
import type { Duplex } from 'node:stream';
import { addressKind } from '../../lib/address-kind.ts';
import { networkOf } from '../../lib/network-of.ts';

/** Counts a connection until it is closed. False if its address has too many. */
export type AdmitConnection = (socket: Duplex & { remoteAddress?: string | undefined }) => boolean;

/**
 * Closes connections of a network address beyond the bound, before a byte is read. Loopback addresses are not
 * counted, because a proxy on this machine connects from there for all its clients. What is returned counts
 * other things as connections.
 */
export function limitConnections(server: Server, mostOfOneAddress: number): AdmitConnection {
  const open = new Map<string, number>();
  const admit: AdmitConnection = (socket) => {
    const { remoteAddress } = socket;
    if (remoteAddress === undefined || addressKind(remoteAddress) === 'loopback') return true;
    const address = networkOf(remoteAddress);
    const count = (open.get(address) ?? 0) + 1;
    open.set(address, count);
    socket.once('close', () => {
      const left = (open.get(address) ?? 1) - 1;
      if (left === 0) open.delete(address);
      else open.set(address, left);
    });
    return count <= mostOfOneAddress;
  };
  server.on('connection', (socket) => {
    if (!admit(socket)) socket.destroy();
  });
  return admit;
}
