/** The driver of the guide: taken from the page, compiled, and run through the conformance suite. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import type { Backend } from '../../server/src/backends/backend.ts';
import { backendSuite } from '../conformance/backend-suite.ts';

const ROOT = join(import.meta.dirname, '../..');
const GUIDE = join(ROOT, 'docs/guide/writing-a-backend.md');
const DIR = join(import.meta.dirname, 'extracted', String(process.pid));
const FILE = join(DIR, 'toy-backend.ts');

const code = /^```ts toy-backend\.ts\n(.*?)^```$/ms.exec(readFileSync(GUIDE, 'utf8'))?.[1];
if (code === undefined) throw new Error('The guide has no code block "toy-backend.ts"');
mkdirSync(DIR, { recursive: true });
// One folder deeper than the guide's code expects, so that runs side by side do not meet.
writeFileSync(FILE, code.replaceAll("'../../../server/", "'../../../../server/"));
const { toyBackend } = (await import(FILE)) as { toyBackend(): Backend };

afterAll(() => rmSync(DIR, { recursive: true, force: true }));

describe('the driver of the guide', () => {
  it('compiles', { timeout: 120_000 }, () => {
    const project = join(DIR, 'tsconfig.json');
    writeFileSync(project, JSON.stringify({ extends: join(ROOT, 'tsconfig.json'), include: [FILE] }));
    const tsc = join(ROOT, 'node_modules/.bin/tsc');
    expect(() => execFileSync(tsc, ['-p', project], { encoding: 'utf8', stdio: 'pipe' })).not.toThrow();
  });

  it('is short enough to read', () => {
    expect(code.split('\n').length).toBeLessThan(220);
  });
});

backendSuite('toy (of the guide)', async () => {
  const backend = toyBackend();
  return {
    backend,
    spec: { limits: { cpus: null, memoryBytes: null, diskBytes: null, pids: null } },
    leftovers: async () => (await backend.list()).map(({ id }) => id),
    cleanup: () => backend.close(),
  };
});
