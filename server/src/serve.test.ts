import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { request } from 'node:http';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pino } from 'pino';
import { Sandbox } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import type { Backend } from './backends/backend.ts';
import { memoryBackend } from './backends/memory/memory.ts';
import { platformsBackend } from './backends/composite/platforms.ts';
import { serve, type ServeOptions } from './serve.ts';

let root: string;
beforeAll(() => {
  root = mkdtempSync(join(tmpdir(), 'cay-serve-'));
});
afterAll(() => rmSync(root, { recursive: true, force: true }));

const start = (name: string, options: Partial<ServeOptions> = {}) =>
  serve({
    backend: memoryBackend(),
    dataDir: join(root, name),
    port: 0,
    log: pino({ level: 'silent' }),
    ...options,
  });

describe('serve()', () => {
  it('makes an admin key on the first start and never shows it again', async () => {
    const first = await start('keys');
    expect(first.adminKey).toMatch(/^e2b_[0-9a-f]{40}$/);
    expect(statSync(join(root, 'keys')).mode & 0o777).toBe(0o700);
    await first.close();
    const second = await start('keys');
    expect(second.adminKey).toBeUndefined();
    const { status } = await fetch(`${second.url}/v1/version`, { headers: { 'x-api-key': first.adminKey! } });
    expect(status).toBe(200);
    await second.close();
  });

  it('refuses a data directory that another server has, and names its process', async () => {
    const first = await start('locked');
    await expect(start('locked')).rejects.toMatchObject({
      code: 'failed_precondition',
      message: expect.stringContaining(`process ${process.pid}`),
      details: { pid: process.pid },
    });
    await first.close();
    await (await start('locked')).close();
  });

  it('leaves alone what is on a platform that it is started without', async () => {
    const asPlatform = vi.fn<(backend: Backend) => Promise<Backend>>((backend) =>
      platformsBackend({ platforms: [{ name: backend.name, open: async () => backend }] }),
    );
    const names = ['memory', 'far'];
    const both = await platformsBackend({
      platforms: names.map((name) => ({ name, open: async () => memoryBackend() })),
    });
    const first = await start('platforms', { backend: both, asPlatform });
    const options = { url: first.url, apiKey: first.adminKey! };
    const { id } = await Sandbox.create({ platform: 'far' }, options);
    await first.close();
    expect(asPlatform).not.toHaveBeenCalled();

    const second = await start('platforms', { asPlatform });
    expect(asPlatform).toHaveBeenCalledOnce();
    const sandbox = await Sandbox.connect(id, { ...options, url: second.url });
    expect(sandbox.info).toMatchObject({ state: 'active', platform: 'far' });
    await expect(sandbox.start()).rejects.toMatchObject({
      code: 'unavailable',
      details: { platform: 'far' },
    });
    await second.close();
  });

  it('takes over the data directory of a server that was killed', async () => {
    const dataDir = join(root, 'killed');
    const program = `
      const { serve } = await import(${JSON.stringify(join(import.meta.dirname, 'serve.ts'))});
      const { memoryBackend } = await import(${JSON.stringify(join(import.meta.dirname, 'backends/memory/memory.ts'))});
      await serve({ backend: memoryBackend(), dataDir: ${JSON.stringify(dataDir)}, port: 0 });
      console.log('READY');
    `;
    const child = spawn(process.execPath, ['--input-type=module', '-e', program], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    for await (const data of child.stdout) if (String(data).includes('READY')) break;
    await expect(start('killed')).rejects.toMatchObject({ details: { pid: child.pid } });
    child.kill('SIGKILL');
    await once(child, 'exit');
    await (await start('killed')).close();
  });

  it('listens beyond this machine only with TLS or when told to', async () => {
    await expect(start('open', { host: '0.0.0.0' })).rejects.toMatchObject({
      code: 'failed_precondition',
      hint: expect.stringContaining('TLS'),
    });
    const server = await start('open', { host: '0.0.0.0', insecure: true });
    expect((await fetch(`${server.url}/healthz`)).status).toBe(200);
    await server.close();
  });

  it('says which address is taken, and leaves nothing behind', async () => {
    const first = await start('port-a');
    const port = Number(new URL(first.url).port);
    await expect(start('port-b', { port })).rejects.toMatchObject({
      message: `Cannot listen on "127.0.0.1:${port}": the port is in use`,
    });
    await first.close();
    await (await start('port-b', { port })).close();
  });

  it('closes while streams are open', async () => {
    const server = await start('closing');
    const response = await fetch(`${server.url}/v1/events`, {
      headers: { 'x-api-key': server.adminKey!, accept: 'text/event-stream' },
    });
    await server.close();
    await expect(
      response.text().then(
        () => 'ended',
        () => 'cut',
      ),
    ).resolves.toMatch(/ended|cut/);
    await expect(fetch(`${server.url}/healthz`)).rejects.toThrow();
  });

  it('closes while a preview’s WebSocket is open', async () => {
    const backend = memoryBackend({
      commands: {
        upgrade: ({ listen, signal }) => {
          listen(80, async (incoming) => {
            await incoming.write(
              'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n',
            );
            for await (const data of incoming.readable) await incoming.write(data);
          });
          return new Promise<number>((resolve) =>
            signal.addEventListener('abort', () => resolve(0), { once: true }),
          );
        },
      },
    });
    const server = await start('upgraded', { backend });
    const post = async (path: string, body: unknown) =>
      (
        await fetch(server.url + path, {
          method: 'POST',
          headers: { 'x-api-key': server.adminKey! },
          body: JSON.stringify(body),
        })
      ).json() as Promise<{ id: string }>;
    const { id } = await post('/v1/sandboxes', { ports: [{ port: 80, visibility: 'public' }] });
    await post(`/v1/sandboxes/${id}/commands`, { argv: ['upgrade'] });
    const client = request(`${server.url}/preview/${id}/80/`, {
      headers: { connection: 'Upgrade', upgrade: 'raw' },
    }).end();
    const [, socket] = (await once(client, 'upgrade')) as [unknown, Socket];
    const closed = once(socket, 'close');
    await server.close();
    await closed;
    expect(socket.destroyed).toBe(true);
  });

  it('logs no keys', async () => {
    const lines: string[] = [];
    const log = pino({ level: 'debug' }, { write: (line: string) => void lines.push(line) });
    const server = await start('logs', { log });
    await fetch(`${server.url}/v1/version?cay_token=hidden-token`, {
      headers: { authorization: `Bearer ${server.adminKey}` },
    });
    await fetch(`${server.url}/v1/${server.adminKey}`);
    await server.close();
    const text = lines.join('');
    expect(text).toContain('getVersion');
    expect(text).not.toContain(server.adminKey!);
    expect(text).not.toContain('hidden-token');
  });
});
