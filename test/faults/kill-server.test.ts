/**
 * `kill -9` of the process that has the local backend, at random moments: afterwards everything that was
 * acknowledged is there, what was under way is either done or not, and nothing is left over.
 *
 * A few rounds run with all tests; `CAY_FAULT_ROUNDS=200 npx vitest run test/faults` runs more. The
 * seed is printed; `CAY_FAULT_SEED` replays it, `CAY_FAULT_RUNTIMES` says on what.
 */
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { whyNoLocal } from '../support/local-platform.ts';

interface Known {
  phase: 'ready' | 'stopped';
  content?: string;
  /** What else it may hold, or be, because the kill came before the acknowledgement. */
  pending?: { operation: string; content: string };
}

const rounds = Number(process.env['CAY_FAULT_ROUNDS'] ?? 6);
const firstSeed = Number(process.env['CAY_FAULT_SEED'] ?? Date.now() % 1_000_000);
const runtimes = (process.env['CAY_FAULT_RUNTIMES'] ?? 'runc,runsc').split(',');
const reason = whyNoLocal();

describe.skipIf(reason !== undefined).each(runtimes)(
  `kill -9 of the server on %s${reason ? ` (skipped: ${reason})` : ''}`,
  (runtime) => {
    let dir: string;
    beforeAll(async () => {
      dir = await mkdtemp('/tmp/cay-f-');
      await chmod(dir, 0o711);
      console.info(`fault seed ${firstSeed}, ${rounds} rounds`);
    });
    afterAll(async () => {
      const backend = await openLocal({ dir });
      await backend.destroy();
      await rm(dir, { recursive: true, force: true });
    });

    it(
      'loses nothing that was acknowledged and leaves nothing over',
      async () => {
        const known = new Map<SandboxId, Known>();
        for (let round = 0; round < rounds; round++) {
          const seed = firstSeed + round;
          await churn(dir, runtime, seed, known);
          await check(dir, runtime, seed, known);
        }
      },
      60_000 + rounds * 30_000,
    );
  },
);

/** Runs the churn until a random moment after it has opened, and notes what it acknowledged. */
async function churn(
  dir: string,
  runtime: string,
  seed: number,
  known: Map<SandboxId, Known>,
): Promise<void> {
  const child = spawn(process.execPath, [join(import.meta.dirname, 'churn.ts'), dir, runtime, String(seed)], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  let killed = false;
  for await (const line of createInterface({ input: child.stdout })) {
    const event = JSON.parse(line) as {
      opened?: true;
      begin?: string;
      done?: string;
      id: SandboxId;
      content: string;
    };
    if (event.opened) {
      setTimeout(
        () => {
          killed = true;
          child.kill('SIGKILL');
        },
        20 + ((seed * 7919) % 1200),
      );
    }
    if (event.begin)
      known.set(event.id, {
        ...(known.get(event.id) ?? { phase: 'stopped' }),
        pending: { operation: event.begin, content: event.content },
      });
    if (event.done) acknowledge(known, event.id, event.done, event.content);
  }
  expect(killed, `the churn ended by itself with seed ${seed}: ${errors}`).toBe(true);
}

function acknowledge(known: Map<SandboxId, Known>, id: SandboxId, operation: string, content: string): void {
  const { pending: _, ...before } = known.get(id)!;
  if (operation === 'remove') known.delete(id);
  else if (operation === 'write') known.set(id, { ...before, content });
  else known.set(id, { ...before, phase: operation === 'stop' ? 'stopped' : 'ready' });
}

/**
 * Opens the same platform, compares it with what was acknowledged, and takes what it finds for the next
 * round.
 */
async function check(
  dir: string,
  runtime: string,
  seed: number,
  known: Map<SandboxId, Known>,
): Promise<void> {
  const backend = await openLocal({ dir, runtime });
  const spec = SandboxSpecSchema.parse({ runtime });
  const context = `seed ${seed}`;
  try {
    const listed = new Map((await backend.list()).map((observed) => [observed.id, observed]));
    for (const id of listed.keys())
      expect(known.has(id), `${context}: ${id} was removed and is there`).toBe(true);
    for (const [id, expected] of known) {
      const pending = expected.pending?.operation;
      const found = listed.get(id);
      if (!found) {
        expect(['create', 'remove'], `${context}: ${id} is gone`).toContain(pending);
        known.delete(id);
        continue;
      }
      if (expected.phase === 'ready' && pending === undefined)
        expect(found.phase, `${context}: ${id}`).toBe('ready');
      // Whatever became of it, it starts, and has the file that was acknowledged or the one that was under
      // way.
      await backend.ensure(id, spec);
      const guest = await backend.connect(id);
      const content = await guest
        .files('user')
        .read('/home/user/note')
        .then(text, () => undefined);
      const allowed = [expected.content, ...(pending === 'write' ? [expected.pending!.content] : [])];
      expect(allowed, `${context}: the file of ${id}`).toContain(content);
      known.set(id, { phase: 'ready', ...(content !== undefined && { content }) });
    }
    expect(await strays(dir, runtime, await instancesOf(dir)), context).toEqual([]);
  } finally {
    await backend.close();
  }
}

async function text({ data }: { data: AsyncIterable<Uint8Array> }): Promise<string> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of data) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

async function instancesOf(dir: string): Promise<Set<string>> {
  const names = new Set<string>();
  for (const file of await readdir(join(dir, 'sandboxes'))) {
    const { instance } = JSON.parse(await readFile(join(dir, 'sandboxes', file), 'utf8')) as {
      instance?: string;
    };
    if (instance) names.add(instance);
  }
  return names;
}

/** Directories, cgroups and containers that belong to no sandbox. */
async function strays(dir: string, runtime: string, instances: Set<string>): Promise<string[]> {
  const { name } = JSON.parse(await readFile(join(dir, 'installation.json'), 'utf8')) as { name: string };
  const places = [
    join(dir, 'instances'),
    join(dir, 'runtimes', runtime),
    ...['memory', 'pids', 'freezer', '.'].map((controller) =>
      join('/sys/fs/cgroup', controller, `cay-${name}`),
    ),
  ];
  const found: string[] = [];
  for (const place of places) {
    for (const entry of await readdir(place, { withFileTypes: true }).catch(() => [])) {
      // gVisor keeps files, which have the name in them.
      const name = /i-[a-z0-9]{20}/.exec(entry.name)?.[0];
      if (name !== undefined && !instances.has(name)) found.push(join(place, entry.name));
    }
  }
  return found;
}
