import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { onEachPlatform } from './support/platforms.ts';
import type { Target } from './support/target.ts';
import { watchServer } from './support/watch-server.ts';

const MiB = 1024 ** 2;
const RUNS = 12;
/**
 * In the place of the kernel: one event of many megabytes, of as many values as fit, with or without an end.
 */
const KERNEL = `
import socketserver
class Kernel(socketserver.BaseRequestHandler):
    count = 0
    def handle(self):
        Kernel.count += 1
        data = b''
        while b'\\r\\n\\r\\n' not in data:
            data += self.request.recv(65536)
        self.request.sendall(b'HTTP/1.1 200 OK\\r\\nConnection: close\\r\\n\\r\\n[')
        piece = b'{},' * 100000
        try:
            for _ in range(200 if Kernel.count % 2 else 40): self.request.sendall(piece)
            self.request.sendall(b'0]\\n')
        except OSError: pass
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
Server(('127.0.0.1', 49999), Kernel).serve_forever()
`;

onEachPlatform('a program in the place of the code interpreter', (platform) => {
  let target: Target;
  beforeAll(async () => {
    target = await platform.start();
  }, 180_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it('holds neither the memory nor the event loop of the server', { timeout: 120_000 }, async () => {
    const { id } = await target.alice.create();
    await target.alice.call('POST', `/v1/sandboxes/${id}/commands`, {
      body: { argv: ['python3', '-c', KERNEL] },
    });
    await sleep(2000);
    const { grownBytes, loopMs } = await watchServer(target, async () => {
      const runs = Array.from({ length: RUNS }, () =>
        target.alice.call('POST', `/v1/sandboxes/${id}/interpreter/run`, {
          body: { code: '1' },
          signal: AbortSignal.timeout(20_000),
        }),
      );
      for (const one of await Promise.allSettled(runs))
        if (one.status === 'fulfilled')
          expect(one.value.text).toMatch(/resource_exhausted|failed_precondition|unavailable/);
    });
    expect(grownBytes).toBeLessThan(300 * MiB);
    expect(loopMs).toBeLessThan(1000);
  });
});
