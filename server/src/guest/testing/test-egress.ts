/**
 * An `Egress` for tests of what is before it: it allows what its table says, and connects to servers of the
 * test on this machine. It is no engine: no policy, no resolving.
 */
import { CayError, type SandboxId } from '@cay/sdk/protocol';
import { connect, type Socket } from 'node:net';
import type { Egress, EgressTarget } from '../../egress/egress.ts';

export interface TestEgress extends Egress {
  /** `name:port`, or `address:port`, and the port on this machine that stands for it. */
  readonly routes: Map<string, number>;
  /** Everything that was asked for, in order. */
  readonly lookups: { sandbox: SandboxId; name: string }[];
  readonly targets: (EgressTarget & { sandbox: SandboxId })[];
  /** Connections that are open. */
  readonly sockets: Set<Socket>;
}

export function testEgress(routes: Record<string, number> = {}): TestEgress {
  const table = new Map(Object.entries(routes));
  const egress: TestEgress = {
    routes: table,
    lookups: [],
    targets: [],
    sockets: new Set(),

    async lookup(sandbox, { name }) {
      egress.lookups.push({ sandbox, name });
      const ports = [...table.keys()]
        .map((key) => /^(.*):(\d+)$/.exec(key)!)
        .filter(([, host]) => host === name)
        .map(([, , port]) => Number(port));
      return ports.length > 0 ? { kind: 'address', ports } : { kind: 'absent' };
    },

    datagrams: (_sandbox, _target, carried) =>
      carried.refuse(new CayError('permission_denied', 'The policy refuses it')),

    connect(sandbox, target, carried) {
      egress.targets.push({ sandbox, ...target });
      const port = table.get(`${target.name ?? target.address}:${target.port}`);
      if (port === undefined)
        return carried.refuse(new CayError('permission_denied', 'The policy refuses it'));
      const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
      egress.sockets.add(socket);
      const { duplex } = carried;
      socket.on('connect', () => {
        carried.accept();
        duplex.pipe(socket);
        socket.pipe(duplex);
      });
      socket.on('error', (cause) =>
        carried.refuse(new CayError('unavailable', 'The target does not answer', { cause })),
      );
      socket.on('close', () => egress.sockets.delete(socket));
      duplex.on('error', () => socket.resetAndDestroy());
      duplex.on('close', () => socket.destroy());
    },
  };
  return egress;
}
