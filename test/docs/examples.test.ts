/**
 * Runs what the documents show. A block marked `runnable` runs as it stands, as a process of its own, against
 * a real server: `ts` by Node in the repository, `sh` by bash in an empty directory with `cay` beside it and
 * in the PATH. It has to end without an error and, if it has lines `// → …` or `# → …`, to print exactly
 * those.
 *
 * With root the server has the local backend on runc; blocks marked `anywhere` run on the memory backend as
 * well.
 */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { memoryBackend } from '../../server/src/backends/memory/memory.ts';
import { serverLog } from '../../server/src/cli/lib/server-log.ts';
import { serve, type RunningServer } from '../../server/src/serve.ts';
import { ended, type Ran } from '../support/cay.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { ROOT, blocksOf, documents, type Block } from '../support/markdown.ts';

const blocks = (await documents()).flatMap(blocksOf).filter(({ marks }) => marks.includes('runnable'));
const anywhere = blocks.filter(({ marks }) => marks.includes('anywhere'));

function runBlock({ language, code }: Block, dir: string, server: RunningServer): Promise<Ran> {
  const env = {
    ...process.env,
    NO_COLOR: '1',
    CAY_URL: server.url,
    CAY_API_KEY: server.adminKey,
    PATH: `${dir}:${process.env['PATH']}`,
  };
  const stdio: ['ignore', 'pipe', 'pipe'] = ['ignore', 'pipe', 'pipe'];
  return ended(
    language === 'ts'
      ? spawn(process.execPath, ['--input-type=module-typescript', '-e', code], { cwd: ROOT, env, stdio })
      : spawn('bash', ['-euo', 'pipefail', '-c', code], { cwd: dir, env, stdio }),
  );
}

function examples(
  title: string,
  chosen: Block[],
  open: (dir: string) => Promise<Backend & { destroy?(): Promise<void> }>,
): void {
  describe(`the documents' examples on ${title}`, () => {
    let dir: string;
    let server: RunningServer;
    beforeAll(async () => {
      dir = await mkdtemp(join(tmpdir(), 'cay-docs-'));
      await symlink(join(ROOT, 'cay'), join(dir, 'cay'));
      const backend = await open(join(dir, 'engine'));
      server = await serve({ backend, dataDir: join(dir, 'control'), port: 0, log: serverLog('silent') });
    });
    afterAll(async () => {
      await server.close();
      // Closing it with the server lets go of everything; only one that is open can take things away.
      await (await open(join(dir, 'engine'))).destroy?.();
      await rm(dir, { recursive: true, force: true });
    });

    it.each(chosen)('work as they are shown: $where', async (block) => {
      const { code, stdout, stderr } = await runBlock(block, dir, server);
      expect({ code, stderr: code === 0 ? '' : stderr }).toEqual({ code: 0, stderr: '' });
      const told = [...block.code.matchAll(/(?:\/\/|#) → (.*)$/gm)].map((match) => match[1]!);
      if (told.length > 0) expect(stdout.trimEnd().split('\n')).toEqual(told);
    });
  });
}

const reason = whyNoLocal();
const later = reason === undefined ? whyLater() : undefined;
if (later === undefined) examples('the memory backend', anywhere, async () => memoryBackend());
else it.skip(`the documents' examples on the memory backend (${later})`, () => {});
if (reason === undefined) {
  examples('the local backend with runc', blocks, async (dir) => {
    // Sandboxes pass through it with ids of their own.
    await chmod(join(dir, '..'), 0o711);
    return openLocal({ dir, runtime: 'runc' });
  });
} else describe("the documents' examples on the local backend", () => it.skip(reason, () => {}));
