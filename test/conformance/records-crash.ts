import { spawn } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import type { RecordsWorld } from './records-suite.ts';

const HOUR_MS = 3600_000;
const WRITER = fileURLToPath(new URL('records-writer.ts', import.meta.url));

/** Runs a process that writes to the records, and is killed. Resolves the lines that it printed. */
function killedWriter(
  at: { directory: string; database?: string },
  { task, faults, killOn }: { task: string; faults?: Record<string, string>; killOn?: string },
): Promise<{ lines: string[]; signal: string | null }> {
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, [WRITER, task, JSON.stringify(at), JSON.stringify(faults ?? {})], {
      stdio: ['ignore', 'pipe', 'inherit'],
    });
    let text = '';
    child.stdout.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (killOn !== undefined && text.includes(killOn)) child.kill('SIGKILL');
    });
    child.on('error', reject);
    child.on('close', (_code, signal) => resolve({ lines: text.split('\n').filter(Boolean), signal }));
  });
}

export function crashCases(world: RecordsWorld): void {
  describe('a process that is killed', () => {
    it.each([
      ['records.transaction.begun', false],
      ['records.transaction.written', false],
      ['records.transaction.committed', true],
    ])('at %s leaves all or nothing, and every event once', async (point, isCommitted) => {
      await world.records.close();
      const { signal } = await killedWriter(world.place.at, { task: 'once', faults: { [point]: 'kill' } });
      expect(signal).toBe('SIGKILL');
      const killedAtMs = Date.now();
      let records = (world.records = await world.place.open({ now: () => killedAtMs + HOUR_MS }));
      const names = (await records.projects.list()).map(({ name }) => name);
      expect(names.sort()).toEqual(isCommitted ? ['one', 'two'] : []);
      const types = async () => (await records.events.list({})).map(({ type }) => type);
      await expect.poll(types).toEqual(isCommitted ? ['made.one', 'made.two'] : []);
      // They have the time at which it happened, and the server after that does not write them again.
      for (const { atMs } of await records.events.list({})) expect(atMs).toBeLessThanOrEqual(killedAtMs);
      records = await world.reopen();
      expect(await types()).toEqual(isCommitted ? ['made.one', 'made.two'] : []);
      expect(await records.events.verify()).toMatchObject({ ok: true });
      // Nothing is locked or left open.
      await records.transaction((tx) => tx.projects.create('after'));
    });

    it('has everything that it was told is committed, and no event twice', async () => {
      await world.records.close();
      const { lines, signal } = await killedWriter(world.place.at, {
        task: 'many',
        killOn: 'committed 40\n',
      });
      expect(signal).toBe('SIGKILL');
      const told = lines.map((line) => Number(line.split(' ')[1]));
      const records = (world.records = await world.place.open());
      const names = new Set((await records.projects.list()).map(({ name }) => name));
      for (const n of told) {
        expect(names).toContain(`a${n}`);
        expect(names).toContain(`b${n}`);
      }
      for (const name of names) expect(names).toContain(name.replace(/^./, name.startsWith('a') ? 'b' : 'a'));
      await expect.poll(() => records.events.lastId()).toBe(names.size / 2);
      const types = (await records.events.list({})).map(({ type }) => type);
      expect(new Set(types).size).toBe(types.length);
      expect(await records.events.verify()).toMatchObject({ ok: true });
    });
  });
}
