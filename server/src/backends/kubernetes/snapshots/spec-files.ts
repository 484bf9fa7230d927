/**
 * The specs of sandboxes on the disk of the server. The cluster does not have them, because their environment
 * may contain secrets. A rollback starts a sandbox again, and a snapshot has the spec that it was made from:
 * both read it here.
 */
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { CayError, isId, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import { writeFileAtomic } from '../../../lib/atomic-file.ts';
import type { SealedBox } from '../../../lib/sealed-box.ts';
import { openedSpec, sealedSpec } from '../../support/sealed-spec.ts';
import { hashOf } from '../../support/spec-hash.ts';

export interface SpecFiles {
  /**
   * Keeps the spec, unless it is there already. A failure is reported and not thrown: a sandbox runs without
   * it.
   */
  keep(id: SandboxId, spec: SandboxSpec): Promise<void>;
  /** The spec with that hash. Rejects `failed_precondition` where it is not known. */
  read(id: SandboxId, hash: string | undefined): Promise<SandboxSpec>;
  remove(id: SandboxId): Promise<void>;
  /**
   * Removes the spec of a sandbox that does not exist. A young one stays: its sandbox may be in the making.
   */
  removeUnused(id: SandboxId): Promise<void>;
  /** The sandboxes whose specs are here. */
  ids(): Promise<SandboxId[]>;
}

const ENDING = '.json';
/** Longer than it takes to make a sandbox. */
const UNUSED_MS = 3_600_000;

export function specFiles(
  dir: string,
  box: SealedBox | undefined,
  onError: (error: unknown) => void,
): SpecFiles {
  /** The hash of what is on the disk. */
  const known = new Map<SandboxId, string>();
  const pathOf = (id: SandboxId) => `${dir}/${id}${ENDING}`;
  const contextOf = (id: SandboxId) => `kubernetes/${id}`;

  async function read(id: SandboxId): Promise<SandboxSpec | undefined> {
    try {
      return openedSpec(await readFile(pathOf(id), 'utf8'), box, contextOf(id));
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
      throw new CayError('failed_precondition', `Cannot read the spec of sandbox "${id}"`, {
        hint: 'give the key that it was sealed with; CAY_SECRET_KEY and the file "secret.key" are where keys come from',
        cause: error,
      });
    }
  }

  return {
    async keep(id, spec) {
      const hash = hashOf(spec);
      if (known.get(id) === hash) return;
      try {
        const there = await read(id).catch(() => undefined);
        if (!there || hashOf(there) !== hash) {
          await mkdir(dir, { recursive: true, mode: 0o700 });
          await writeFileAtomic(pathOf(id), sealedSpec(spec, box, contextOf(id)), { powerLoss: 'undo' });
        }
        known.set(id, hash);
      } catch (error) {
        onError(error);
      }
    },

    async read(id, hash) {
      const spec = await read(id);
      if (spec && hashOf(spec) === hash) return spec;
      throw new CayError('failed_precondition', `The spec of sandbox "${id}" is not known to this server`, {
        hint: 'it was made by an earlier version or another server; stop it and start it again',
        details: { reason: 'spec_unknown' },
      });
    },

    async remove(id) {
      known.delete(id);
      await rm(pathOf(id), { force: true });
    },

    async removeUnused(id) {
      const { mtimeMs } = await stat(pathOf(id)).catch(() => ({ mtimeMs: Infinity }));
      if (Date.now() - mtimeMs < UNUSED_MS) return;
      known.delete(id);
      await rm(pathOf(id), { force: true });
    },

    async ids() {
      const names = await readdir(dir).catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return [];
        throw error;
      });
      const ids = names.map((name) => (name.endsWith(ENDING) ? name.slice(0, -ENDING.length) : ''));
      return ids.filter((id): id is SandboxId => isId('sbx', id));
    },
  };
}
