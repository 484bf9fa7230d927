/**
 * A process that works a local backend until it is killed, and says what was acknowledged: one line of
 * JSON before each deed (`begin`) and after it (`done`). Started by the fault tests.
 *
 *     node churn.ts DIR RUNTIME SEED
 */
import { writeSync } from 'node:fs';
import { newId, SandboxSpecSchema, type SandboxId } from '@cay/sdk/protocol';
import { openLocal } from '../../server/src/backends/local/open-local.ts';

const [dir, runtime, seed] = process.argv.slice(2) as [string, string, string];
let state = Number(seed);
/** The same seed gives the same deeds; only the moment of the kill differs. */
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
  const deeds = ['create', 'write', 'write', 'stop', 'start', 'remove'] as const;
  const deed =
    ready.size + stopped.size < 2 ? 'create' : deeds[random(ready.size + stopped.size > 5 ? 6 : 5)]!;
  const id = deed === 'create' ? newId('sbx') : pick(deed === 'start' ? stopped : ready);
  if (id === undefined) continue;
  const content = `${seed}-${turn}`;
  say({ begin: deed, id, content });
  if (deed === 'create' || deed === 'start') {
    await backend.ensure(id, spec);
    stopped.delete(id);
    ready.add(id);
  } else if (deed === 'write') {
    const guest = await backend.connect(id);
    await guest.files('user').write('/home/user/note', Buffer.from(content));
  } else if (deed === 'stop') {
    ready.delete(id);
    await backend.stop(id, { graceMs: 0 });
    stopped.add(id);
  } else {
    ready.delete(id);
    await backend.remove(id);
  }
  say({ done: deed, id, content });
}
