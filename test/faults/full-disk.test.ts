/** A disk that is really full: a small tmpfs under the data directory. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { memoryBackend } from '../../server/src/backends/memory/memory.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';

let directory: string;
const reason = (() => {
  if (process.getuid?.() !== 0) return 'mounting needs root';
  directory = mkdtempSync(join(tmpdir(), 'cay-full-'));
  try {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=8m', 'tmpfs', directory], { stdio: 'pipe' });
    return undefined;
  } catch (error) {
    rmSync(directory, { recursive: true, force: true });
    return `cannot mount a tmpfs: ${(error as Error).message}`;
  }
})();

describe.skipIf(reason !== undefined)(
  `a full disk under the records${reason ? ` (skipped: ${reason})` : ''}`,
  () => {
    let server: RunningServer;

    beforeAll(async () => {
      server = await serve({
        backend: memoryBackend(),
        dataDir: join(directory, 'data'),
        port: 0,
        log: serverLog('silent'),
      });
    });
    afterAll(async () => {
      await server?.close();
      execFileSync('umount', [directory]);
      rmSync(directory, { recursive: true, force: true });
    });

    async function call(method: string, path: string, body?: unknown) {
      const response = await fetch(server.url + path, {
        method,
        headers: { authorization: `Bearer ${server.adminKey}` },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const text = await response.text();
      // oxlint-disable-next-line typescript/no-explicit-any -- answers of every shape
      return { status: response.status, json: (text === '' ? undefined : JSON.parse(text)) as any };
    }

    function fill(): void {
      for (const size of [65_536, 4096, 1]) {
        for (let i = 0; ; i++) {
          try {
            writeFileSync(join(directory, `fill-${size}-${i}`), Buffer.alloc(size));
          } catch {
            break;
          }
        }
      }
    }

    function empty(): void {
      for (const name of readdirSync(directory)) if (name.startsWith('fill-')) rmSync(join(directory, name));
    }

    it('is reported, the server goes on, and when there is room again nothing is missing', async () => {
      const { id } = (await call('POST', '/v1/sandboxes', {})).json as { id: string };
      const before = (await call('GET', '/v1/events')).json.last as number;
      fill();
      const refused = await call('POST', '/v1/sandboxes', { name: 'refused' });
      expect(refused.status).toBe(429);
      expect(refused.json.error).toMatchObject({
        code: 'resource_exhausted',
        hint: expect.stringContaining('make room'),
      });
      // What needs no record works, and is noted as soon as there is room.
      const commands = 30;
      for (let i = 0; i < commands; i++) {
        const { status, json } = await call('POST', `/v1/sandboxes/${id}/exec`, { shell: `echo ${i}` });
        expect(status).toBe(200);
        expect(json.stdout).toBe(`${i}\n`);
      }
      expect((await call('GET', '/v1/sandboxes')).json.sandboxes).toHaveLength(1);
      expect((await call('POST', '/v1/admin/backup')).json.error.code).toBe('resource_exhausted');
      empty();
      expect((await call('POST', '/v1/sandboxes', { name: 'taken' })).status).toBe(201);
      const since = async () =>
        (await call('GET', `/v1/events?after=${before}`)).json.events as {
          type: string;
          data: { shell?: string };
        }[];
      for (let tries = 0; tries < 100 && (await since()).length < commands * 2 + 2; tries++) await sleep(50);
      const shells = (await since())
        .filter(({ type }) => type === 'command.started')
        .map(({ data }) => data.shell);
      expect(shells).toEqual(Array.from({ length: commands }, (_, i) => `echo ${i}`));
      expect((await call('GET', '/v1/audit/verify')).json).toMatchObject({ ok: true });
    });
  },
);
