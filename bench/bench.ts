/** What every section of the bench is given, and the few things they all do. */
import { newId, SandboxSpecSchema, type SandboxId, type SandboxSpecInput } from '@cay/sdk/protocol';
import type { LocalBackend } from '../server/src/backends/local/local.ts';
import type { OpenLocalOptions } from '../server/src/backends/local/open-local.ts';
import { collect } from '../server/src/guest/collect.ts';
import type { Guest } from '../server/src/guest/guest.ts';
import type { Baselines } from './baselines.ts';
import type { Report } from './report.ts';

export interface Bench {
  report: Report;
  baselines: Baselines;
  open(options?: Partial<OpenLocalOptions>): Promise<LocalBackend>;
}

export const RUNTIMES = ['runc', 'runsc'] as const;

export async function create(
  backend: LocalBackend,
  spec: SandboxSpecInput,
): Promise<{ id: SandboxId; guest: Guest }> {
  const id = newId('sbx');
  await backend.ensure(id, SandboxSpecSchema.parse(spec));
  return { id, guest: await backend.connect(id) };
}

let counter = 0;

/** Runs a command to its end, and fails unless that end is good. */
export async function exec(guest: Guest, ...argv: string[]): Promise<void> {
  const handle = await guest.exec({
    id: `b${++counter}`,
    argv,
    env: {},
    workdir: '/home/user',
    user: 'user',
  });
  const { end } = await collect(handle, { maxBytes: 1 << 20 });
  if (end.kind !== 'exited' || end.exitCode !== 0)
    throw new Error(`${argv.join(' ')} ended as ${JSON.stringify(end)}`);
}

/** Ends every sandbox and everything the backend has, so that the next section starts from nothing. */
export async function wipe(backend: LocalBackend): Promise<void> {
  for (const { id } of await backend.list()) await backend.remove(id);
  await backend.destroy();
}
