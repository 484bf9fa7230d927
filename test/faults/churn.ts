/**
 * A process that works a local backend until it is killed, and says what was acknowledged: one line of
 * JSON before each operation (`begin`) and after it (`done`). Started by the fault tests.
 *
 *     node churn.ts DIR RUNTIME SEED
 */
import { writeSync } from 'node:fs';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { openLocal } from '../../server/src/backends/local/open-local.ts';

const [dir, runtime, seed] = process.argv.slice(2) as [string, string, string];
let state = Number(seed);
/** The same seed gives the same operations; only the moment of the kill differs. */
const random = (below: number) => {
  state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
  return state % below;
};
const say = (line: Record<string, unknown>) => writeSync(1, `${JSON.stringify(line)}\n`);

const backend = await openLocal({ dir, runtime, poolSize: 1 });
const ready = new Set<SandboxId>();
const stopped = new Set<SandboxId>();
for (const { id, phase } of await backend.list()) (phase === 'ready' ? ready : stopped).add(id);
const spec = SandboxSpecSchema.parse({ runtime });
say({ opened: true });

const pick = (from: Set<SandboxId>) => [...from][random(from.size)];

for (let turn = 0; ; turn++) {
  const operations = ['create', 'write', 'write', 'stop', 'start', 'remove'] as const;
  const operation =
    ready.size + stopped.size < 2 ? 'create' : operations[random(ready.size + stopped.size > 5 ? 6 : 5)]!;
  const id = operation === 'create' ? newId('sbx') : pick(operation === 'start' ? stopped : ready);
  if (id === undefined) continue;
  const content = `${seed}-${turn}`;
  say({ begin: operation, id, content });
  if (operation === 'create' || operation === 'start') {
    await backend.ensure(id, spec);
    stopped.delete(id);
    ready.add(id);
  } else if (operation === 'write') {
    const guest = await backend.connect(id);
    await guest.files('user').write('/home/user/note', Buffer.from(content));
  } else if (operation === 'stop') {
    ready.delete(id);
    await backend.stop(id, { graceMs: 0 });
    stopped.add(id);
  } else {
    ready.delete(id);
    await backend.remove(id);
  }
  say({ done: operation, id, content });
}
