import { once } from 'node:events';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { afterEach, expect, it } from 'vitest';
import { makeBox } from '../../../../test/conformance/box.ts';
import { testEgress } from '../../guest/testing/test-egress.ts';
import { memoryBackend } from './memory.ts';
import type { Program } from './program.ts';

let server: Server | undefined;
afterEach(() => void server?.close());

/** Connects, says hello, and prints what comes back until the end. */
const dial: Program = async ({ argv, stdout, connect }) => {
  const connection = await connect(argv[1]!, Number(argv[2]));
  connection.end('hello');
  for await (const chunk of connection) await stdout.write(chunk as Uint8Array);
  return 0;
};

it('programs reach what the egress allows, and nothing without one', async () => {
  server = createServer({ allowHalfOpen: true }, (socket) => socket.pipe(socket)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const egress = testEgress({ 'echo.test:7': port, '192.0.2.7:7': port });
  const open = async (with_?: typeof egress) => {
    const backend = memoryBackend({ commands: { dial }, egress: with_ });
    const id = newId('sbx');
    await backend.ensure(id, SandboxSpecSchema.parse({}));
    return makeBox(id, await backend.connect(id), '/home/user');
  };
  const box = await open(egress);
  expect(await box.run(['dial', 'ECHO.test', '7'])).toMatchObject({ exitCode: 0, stdout: 'hello' });
  expect(await box.run(['dial', '192.0.2.7', '7'])).toMatchObject({ exitCode: 0, stdout: 'hello' });
  expect(egress.targets).toEqual([
    { sandbox: box.id, name: 'echo.test', port: 7 },
    { sandbox: box.id, address: '192.0.2.7', port: 7 },
  ]);
  for (const host of ['absent.test', '192.0.2.8']) {
    const { exitCode, stderr } = await box.run(['dial', host, '7']);
    expect({ exitCode, stderr }).toEqual({ exitCode: 1, stderr: expect.stringContaining(host) });
  }
  expect((await (await open()).run(['dial', 'echo.test', '7'])).exitCode).toBe(1);
});
