/** A directory for the local backend, with hands to look behind it. For tests. */
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { newId, SandboxSpecSchema, type Limits, type SandboxId, type SandboxSpec } from '@cay/sdk/protocol';
import type { Egress } from '../../../egress/egress.ts';
import { collect } from '../../../guest/collect.ts';
import { localBackend, type LocalBackend, type LocalOptions } from '../local.ts';
import { openLocalParts, openLocal } from '../open-local.ts';
import type { SandboxRecord } from '../sandbox-record.ts';

export interface LocalWorld {
  readonly dir: string;
  readonly spec: SandboxSpec;
  /** What the backends had to say beside what they answered. */
  readonly errors: unknown[];
  open(options?: Partial<LocalOptions>, change?: (parts: LocalParts) => LocalParts): Promise<LocalBackend>;
  /** Lets go of everything as a process that is killed would, whatever the backend is in the middle of. */
  abandon(backend: LocalBackend): Promise<void>;
  box(backend: LocalBackend, spec?: SandboxSpec): Promise<SandboxId>;
  run(backend: LocalBackend, id: SandboxId, shell: string): Promise<string>;
  note(backend: LocalBackend, id: SandboxId, text: string): Promise<void>;
  readNote(backend: LocalBackend, id: SandboxId): Promise<string>;
  record(id: SandboxId): Promise<SandboxRecord>;
  changeRecord(id: SandboxId, change: Partial<SandboxRecord>): Promise<void>;
  freezerState(id: SandboxId): Promise<'frozen' | 'thawed'>;
  /** SIGKILL to all of the sandbox's processes. */
  kill(id: SandboxId): Promise<void>;
  instances(): Promise<string[]>;
  images(): Promise<string[]>;
  snapshotTrees(): Promise<string[]>;
  destroy(): Promise<void>;
}

export type LocalParts = Awaited<ReturnType<typeof openLocalParts>>;

let counter = 0;

export async function localWorld({
  runtime,
  limits,
  egress,
}: {
  runtime: string;
  limits?: Partial<Limits>;
  egress?: Egress;
}): Promise<LocalWorld> {
  const dir = await mkdtemp('/tmp/cay-w-');
  await chmod(dir, 0o711);
  const opened = new Set<LocalBackend>();
  const errors: unknown[] = [];
  const spec = SandboxSpecSchema.parse({ runtime, ...(limits && { limits }) });
  let trees: LocalParts['resources']['trees'] | undefined;

  async function groupFile(id: SandboxId, controller: string, file: string): Promise<string | undefined> {
    const { instance } = await world.record(id);
    const { name } = JSON.parse(await readFile(join(dir, 'installation.json'), 'utf8')) as { name: string };
    return ['', controller]
      .map((root) => join('/sys/fs/cgroup', root, `cay-${name}`, instance!, file))
      .find(existsSync);
  }

  const world: LocalWorld = {
    dir,
    spec,
    errors,
    async open(options = {}, change = (parts) => parts) {
      const parts = change(await openLocalParts({ dir, policy: options.policy, egress }));
      ({ trees } = parts.resources);
      const backend = await localBackend({
        ...parts,
        runtime,
        onError: (error) => errors.push(error),
        ...options,
      });
      opened.add(backend);
      return backend;
    },
    async abandon(backend) {
      opened.delete(backend);
      // What hangs in it hangs on; its links are closed by then.
      await Promise.race([backend.close(), new Promise((resolve) => setTimeout(resolve, 300))]);
    },
    async box(backend, other = spec) {
      const id = newId('sbx');
      await backend.ensure(id, other);
      return id;
    },
    async run(backend, id, shell) {
      const guest = await backend.connect(id);
      const handle = await guest.exec({
        id: `world-${++counter}`,
        shell,
        env: {},
        workdir: '/',
        user: 'user',
      });
      const { stdout } = await collect(handle, { maxBytes: 65_536 });
      return Buffer.from(stdout).toString().trim();
    },
    async note(backend, id, text) {
      await (await backend.connect(id)).files('user').write('/home/user/note', Buffer.from(text));
    },
    async readNote(backend, id) {
      const { data } = await (await backend.connect(id)).files('user').read('/home/user/note');
      let text = '';
      for await (const part of data) text += Buffer.from(part).toString();
      return text;
    },
    async record(id) {
      return JSON.parse(await readFile(join(dir, 'sandboxes', `${id}.json`), 'utf8')) as SandboxRecord;
    },
    async changeRecord(id, change) {
      await writeFile(
        join(dir, 'sandboxes', `${id}.json`),
        JSON.stringify({ ...(await world.record(id)), ...change }),
      );
    },
    async freezerState(id) {
      const v1 = await groupFile(id, 'freezer', 'freezer.state');
      if (v1) return (await readFile(v1, 'utf8')).trim() === 'THAWED' ? 'thawed' : 'frozen';
      const v2 = await groupFile(id, '', 'cgroup.freeze');
      return (await readFile(v2!, 'utf8')).trim() === '0' ? 'thawed' : 'frozen';
    },
    async kill(id) {
      const path = await groupFile(id, 'pids', 'cgroup.procs');
      for (const pid of (await readFile(path!, 'utf8')).trim().split('\n'))
        process.kill(Number(pid), 'SIGKILL');
    },
    instances: () => readdir(join(dir, 'instances')),
    images: () => readdir(join(dir, 'images')),
    async snapshotTrees() {
      return (await trees!.list()).map(({ name }) => name).filter((name) => name.startsWith('s-'));
    },
    async destroy() {
      for (const backend of opened) await backend.close().catch(() => {});
      await (await openLocal({ dir, runtime })).destroy();
      await rm(dir, { recursive: true, force: true });
    },
  };
  return world;
}
