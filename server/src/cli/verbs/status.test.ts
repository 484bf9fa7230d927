import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { newAuthority } from '../../egress/tls/authority.ts';
import { cliFileOf, serverFileOf } from '../lib/settings.ts';
import { runCli } from '../program.ts';
import type { Composition } from '../verb.ts';

let dir: string;
beforeEach(() => {
  dir = mkdtempSync('/tmp/cay-status-');
});
afterEach(() => {
  vi.restoreAllMocks();
  rmSync(dir, { recursive: true, force: true });
});

async function status(): Promise<{ code: number; stdout: string; stderr: string }> {
  const said = { stdout: '', stderr: '' };
  for (const stream of ['stdout', 'stderr'] as const)
    vi.spyOn(process[stream], 'write').mockImplementation((text) => {
      said[stream] += String(text);
      return true;
    });
  const before = process.exitCode;
  // It serves nothing and opens no backend.
  const code = await runCli({} as Composition, ['status', '--data', dir]);
  process.exitCode = before;
  vi.restoreAllMocks();
  return { code, ...said };
}

/** What a server leaves in its data directory; `pid` is that of a process that runs, or of none. */
function leave(url: string, pid: number): void {
  const files = {
    [cliFileOf(dir)]: { url, key: 'e2b_x' },
    [serverFileOf(dir)]: { url, pid, backend: 'memory' },
  };
  for (const [path, content] of Object.entries(files)) writeFileSync(path, JSON.stringify(content));
}

describe('cay status', () => {
  it('says of a server whose certificate is refused that it runs, and why it has no answer', async () => {
    const { certificate, key } = newAuthority();
    const server = createServer({ cert: certificate, key }, (_request, response) => response.end('{}'));
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    leave(`https://127.0.0.1:${(server.address() as AddressInfo).port}`, process.pid);
    const { code, stderr } = await status();
    server.close();
    expect(stderr).toContain(`The server runs (process ${process.pid}), and does not answer`);
    expect(stderr).toContain('certificate is not valid');
    expect(code).toBe(69);
  });

  it('says of a server whose process is gone that it does not run', async () => {
    leave('http://127.0.0.1:9', 2 ** 22 + 1);
    expect(await status()).toMatchObject({
      code: 3,
      stdout: expect.stringContaining('not running') as string,
    });
  });
});
