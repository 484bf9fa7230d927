/**
 * A process that makes, uses and removes sandboxes again and again, and says what it holds itself: one line
 * of JSON after the first cycles and one after the last. Started by the churn test.
 *
 *     node --expose-gc cycles.ts DIR RUNTIME COUNT
 */
import { readdirSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { newId, SandboxSpecSchema } from '@cay/sdk/protocol';
import { openLocal } from '../../server/src/backends/local/open-local.ts';
import { collect } from '../../server/src/guest/collect.ts';

const [dir, runtime, count] = process.argv.slice(2) as [string, string, string];
/** What is loaded and kept once is there after these. */
const WARM_UP = 10;
const POOL = 2;

const errors: string[] = [];
const backend = await openLocal({
  dir,
  runtime,
  poolSize: POOL,
  onError: (error) => errors.push(String(error)),
});
const spec = SandboxSpecSchema.parse({ runtime });
await backend.warm();

for (let cycle = 0; cycle < WARM_UP; cycle++) await once(cycle);
await report();
for (let cycle = 0; cycle < Number(count); cycle++) await once(cycle);
await report();
await backend.destroy();
writeSync(1, `${JSON.stringify({ errors })}\n`);

async function once(cycle: number): Promise<void> {
  const id = newId('sbx');
  await backend.ensure(id, spec);
  const guest = await backend.connect(id);
  const handle = await guest.exec({
    id: 'one',
    argv: ['cat'],
    env: {},
    workdir: '/',
    user: 'user',
    stdin: true,
  });
  await handle.write(Buffer.from('hello'));
  await handle.closeStdin();
  const { stdout } = await collect(handle, { maxBytes: 1024 });
  if (Buffer.from(stdout).toString() !== 'hello')
    throw new Error(`The command said "${Buffer.from(stdout).toString()}"`);
  await guest.files('user').write('/home/user/note', Buffer.alloc(100_000, cycle));
  if (cycle % 10 === 5) {
    await backend.stop(id, { graceMs: 100 });
    await backend.ensure(id, spec);
  }
  // Some go while a command runs in them.
  if (cycle % 3 === 0)
    await (
      await backend.connect(id)
    ).exec({ id: 'two', argv: ['sleep', '60'], env: {}, workdir: '/', user: 'user' });
  await backend.remove(id);
}

/** At rest: the pool is full, what was closed is collected. */
async function report(): Promise<void> {
  await backend.warm();
  for (let round = 0; round < 5; round++) {
    await sleep(300);
    globalThis.gc!();
  }
  const { rss, heapUsed } = process.memoryUsage();
  const open = readdirSync('/proc/self/fd').length;
  writeSync(1, `${JSON.stringify({ open, rss, heapUsed })}\n`);
}
