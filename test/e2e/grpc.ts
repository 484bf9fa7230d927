/** A real gRPC server, that of Python's grpcio, on loopback: in the clear, and behind TLS. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect, type AddressInfo } from 'node:net';
import { createInterface } from 'node:readline';
import { createServer } from 'node:tls';
import type { Authority } from '../../server/src/egress/tls/authority.ts';

/** `Say` answers once, `Repeat` a hundred times. */
const SERVER = `
import grpc
from concurrent import futures
class Echo(grpc.GenericRpcHandler):
    def service(self, call):
        if call.method == '/demo.Echo/Say':
            return grpc.unary_unary_rpc_method_handler(lambda body, _: b'echo ' + body)
        if call.method == '/demo.Echo/Repeat':
            return grpc.unary_stream_rpc_method_handler(
                lambda body, _: (b'%d %s' % (n, body) for n in range(100)))
server = grpc.server(futures.ThreadPoolExecutor(4))
server.add_generic_rpc_handlers((Echo(),))
print(server.add_insecure_port('127.0.0.1:0'), flush=True)
server.start()
server.wait_for_termination()
`;
/** Debian's own, which sandboxes of the base template have, too. */
const PYTHON = '/usr/bin/python3';

/** Why there is none here; `undefined` if there is one. */
export function grpcMissing(): string | undefined {
  try {
    execFileSync(PYTHON, ['-c', 'import grpc'], { stdio: 'ignore' });
    return undefined;
  } catch {
    return 'there is no grpcio for Python: run scripts/install-host --tests';
  }
}

export interface TestGrpc extends AsyncDisposable {
  readonly port: number;
  readonly securePort: number;
}

export async function openGrpc(authority: Authority): Promise<TestGrpc> {
  const child = spawn(PYTHON, ['-c', SERVER], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = (await once(createInterface({ input: child.stdout }), 'line')) as [string];
  const port = Number(line);
  const entrance = createServer(
    {
      ALPNProtocols: ['h2'],
      SNICallback: (name, done) => done(null, authority.contextFor(name)),
    },
    (socket) => {
      const inner = connect(port, '127.0.0.1');
      socket.pipe(inner).pipe(socket);
      socket.on('error', () => inner.destroy());
      inner.on('error', () => socket.destroy());
    },
  ).listen(0, '127.0.0.1');
  await once(entrance, 'listening');
  return {
    port,
    securePort: (entrance.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      entrance.close();
      child.kill('SIGKILL');
      if (child.exitCode === null && child.signalCode === null) await once(child, 'exit');
    },
  };
}
