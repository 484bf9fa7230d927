import { CayError, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { CallScope, Observation } from '../backend.ts';
import { sameSpec } from '../support/check.ts';
import { removeSandbox } from './end-instance.ts';
import { requireOpen, type Engine } from './engine.ts';
import { setFrozen } from './freeze.ts';
import { hostnameFor, hostnameOf } from './hostname.ts';
import type { SandboxRecord } from './sandbox-record.ts';
import { start } from './start.ts';
import { wake } from './wake.ts';

/** Makes the sandbox run, whatever its record says. Runs in the queue of the sandbox. */
export async function ensure(
  engine: Engine,
  id: SandboxId,
  spec: SandboxSpec,
  { project, signal, name }: Pick<CallScope, 'project' | 'signal' | 'name'>,
): Promise<Observation> {
  const { records, live } = engine;
  requireOpen(engine, id);
  const found = records.get(id);
  if (found?.phase === 'removing') await removeSandbox(engine, found);
  const record = records.get(id);
  if (record && !sameSpec(record.spec, spec))
    throw new CayError('already_exists', `Sandbox "${id}" exists already with another spec`);
  if (record?.phase === 'ready' && live.has(id)) return setFrozen(engine, id, false);
  if (record?.phase === 'hibernated') return wake(engine, record, signal);
  const hostname = record && name === undefined ? hostnameOf(record) : hostnameFor(id, name);
  const how = { before: record, project, signal, hostname };
  return start(engine, id, record ? restarted(record, spec) : spec, how);
}

/** The spec of another start: the limits of today, and the disk that it has. */
function restarted({ spec: own }: SandboxRecord, { limits }: SandboxSpec): SandboxSpec {
  return { ...own, limits: { ...limits, diskBytes: own.limits.diskBytes } };
}
