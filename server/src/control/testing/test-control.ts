/** A control plane over the memory backend that can be killed between any two steps and opened again. */
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync, type SQLInputValue } from 'node:sqlite';
import { CreateSandboxSchema, type CreateSandboxInput } from '@cay/sdk/protocol';
import { abilityOf, type Backend, type Measuring } from '../../backends/backend.ts';
// Tests need a backend behind the contract; this one is the reference.
// oxlint-disable-next-line no-restricted-imports
export { memoryBackend, type MemoryBackend } from '../../backends/memory/memory.ts';
// oxlint-disable-next-line no-restricted-imports
import { openDirectoryStore } from '../../storage/directory.ts';
import { openControl, type Control, type ControlOptions } from '../open-control.ts';
import type { Principal } from '../tenants/principal.ts';
import { openRecords } from '../../records/open-records.ts';
import type { Records } from '../../records/records.ts';

export interface TestControl extends Pick<Records, 'projects' | 'sandboxes' | 'events'> {
  control: Control;
  principal: Principal;
  records: Records;
  errors: unknown[];
  /** Reads or writes the file of the records, beside the server. */
  sql<T>(text: string, ...values: SQLInputValue[]): T[];
  /** `jumpedMs` is how far the clock was set, which is not elapsed time. */
  clock: { nowMs: number; jumpedMs: number };
  /** Ends like `kill -9`: nothing is finished but the transaction that is open. */
  kill(): Promise<void>;
}

export interface Installation {
  open(
    backend: Backend,
    options?: Pick<
      ControlOptions,
      'bucketEndpoints' | 'policy' | 'idleLookMs' | 'pressure' | 'reclaimUnusedMs' | 'reconcileMs'
    >,
  ): Promise<TestControl>;
  /** The names of the objects in the archive store. */
  archived(): string[];
  remove(): void;
}

export function installation(): Installation {
  const directory = mkdtempSync(join(tmpdir(), 'cay-control-'));
  const clock = { nowMs: 1_700_000_000_000, jumpedMs: 0 };
  const archives = join(directory, 'archives');
  return {
    archived: () => readdirSync(archives),
    async open(backend, options = {}) {
      const errors: unknown[] = [];
      const records = await openRecords({
        directory,
        now: () => clock.nowMs,
        onError: (error) => errors.push(error),
      });
      const { projects, sandboxes, events } = records;
      const project = (await projects.byName('default')) ?? (await projects.create('default'));
      const control = await openControl({
        backend,
        records,
        previewUrl: (id, port) => `http://${port}-${id}.localhost/`,
        archives: await openDirectoryStore({ dir: archives }),
        directories: { logs: join(directory, 'logs'), buildFiles: join(directory, 'build-files') },
        now: () => clock.nowMs,
        monotonic: () => clock.nowMs - clock.jumpedMs,
        onError: (error) => errors.push(error),
        ...options,
      });
      return {
        control,
        projects,
        sandboxes,
        events,
        records,
        errors,
        clock,
        sql<T>(text: string, ...values: SQLInputValue[]) {
          const sqlite = new DatabaseSync(join(directory, 'records.db'));
          try {
            return sqlite.prepare(text).all(...values) as T[];
          } finally {
            sqlite.close();
          }
        },
        principal: { project: project.id, key: null, role: 'admin' },
        kill: () => records.close(),
      };
    },
    remove: () => rmSync(directory, { recursive: true, force: true }),
  };
}

export const asked = (input: CreateSandboxInput = {}) => CreateSandboxSchema.parse(input);

type Verb = 'ensure' | 'stop' | 'remove';

/** The backend, until `verb` is called: that call never returns, and its work is done or not. */
export function stuckBackend(
  backend: Backend,
  verb: Verb,
  done: boolean,
): { backend: Backend; reached: Promise<void> } {
  const { promise: reached, resolve } = Promise.withResolvers<void>();
  const stuck = new Proxy(backend, {
    get(target, name) {
      const value = Reflect.get(target, name) as unknown;
      if (name !== verb) return value;
      return async (...values: unknown[]) => {
        if (done) await (value as (...values: unknown[]) => Promise<unknown>).apply(target, values);
        resolve();
        return new Promise(() => {});
      };
    },
  });
  return { backend: stuck, reached };
}

/** The backend on a platform of this capacity. */
export function measuredBackend(backend: Backend, capacity: Measuring['capacity']): Backend {
  return {
    ...backend,
    ability(name) {
      const own = abilityOf({ capacity: { capacity } }, name);
      return own ?? (Reflect.apply(backend.ability, this, [name]) as typeof own);
    },
  };
}
