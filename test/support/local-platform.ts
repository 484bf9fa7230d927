/** The local backend on a directory of its own, with eyes for what it leaves on the host. */
import { readdir, readFile, mkdtemp, rm } from 'node:fs/promises';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { openLocal, type OpenLocalOptions } from '../../server/src/backends/local/open-local.ts';
import type { TestPlatform } from '../conformance/test-platform.ts';

/** Why the local backend cannot run here, or `undefined` if it can. */
export function whyNoLocal(): string | undefined {
  return process.getuid?.() === 0 ? undefined : 'the local backend needs root';
}

export async function localPlatform(
  options: Partial<OpenLocalOptions> & { runtime: string },
): Promise<TestPlatform> {
  const dir = await mkdtemp('/tmp/cay-t-');
  const open = () => openLocal({ dir, ...options });
  const first = await open();
  const { name } = JSON.parse(await readFile(join(dir, 'installation.json'), 'utf8')) as { name: string };
  const cgroupRoots = [
    '',
    'memory',
    'cpu',
    'cpuacct',
    'pids',
    'freezer',
    'devices',
    'blkio',
    'cpuset',
    'systemd',
    'unified',
  ].map((controller) => join('/sys/fs/cgroup', controller, `cay-${name}`));

  async function cgroups(): Promise<string[]> {
    const found: string[] = [];
    for (const root of cgroupRoots) {
      for (const entry of await readdir(root, { withFileTypes: true }).catch(() => []))
        if (entry.isDirectory()) found.push(join(root, entry.name));
    }
    return found;
  }

  async function instanceOf(id: string): Promise<string> {
    const record = JSON.parse(await readFile(join(dir, 'sandboxes', `${id}.json`), 'utf8')) as {
      instance: string;
    };
    return record.instance;
  }

  let current = first;
  return {
    backend: current,
    spec: { runtime: options.runtime },
    async restart() {
      current = await open();
      return current;
    },
    async crash(id) {
      const instance = await instanceOf(id);
      const group = (await cgroups()).find(
        (path) => path.endsWith(`/${instance}`) && existsSync(join(path, 'cgroup.procs')),
      );
      for (const pid of (await readFile(join(group!, 'cgroup.procs'), 'utf8')).split('\n')) {
        // One that ends before its turn is as good as killed.
        if (pid !== '')
          try {
            process.kill(Number(pid), 'SIGKILL');
          } catch {
            continue;
          }
      }
    },
    async leftovers() {
      const mounts = (await readFile('/proc/self/mounts', 'utf8'))
        .split('\n')
        .map((line) => line.split(' ')[1] ?? '');
      const entries = async (path: string) =>
        (await readdir(join(dir, path)).catch(() => [])).map((entry) => join(dir, path, entry));
      return [
        ...(await cgroups()),
        // The pool that all trees stand on stays mounted as long as the backend is open.
        ...mounts.filter((path) => path.startsWith(`${dir}/`) && path !== join(dir, 'storage', 'pool')),
        ...(await entries('instances')),
        ...(await entries('sandboxes')),
        ...(await entries('snapshots')),
        ...(await entries('images')),
        ...(await entries(`runtimes/${options.runtime}`)),
        // Trees: some are kept ready, and only the backend knows which.
        ...(await current.sweep({ dryRun: true })).map(({ kind, name }) => `${kind} ${name}`),
      ];
    },
    hostPaths: [dir, import.meta.dirname],
    mapsUsers: options.runtime === 'runc' || options.runtime === 'crun',
    ...(options.runtime !== 'process' && { kernel: options.runtime === 'runsc' ? 'own' : 'shared' }),
    async cleanup() {
      await current.destroy();
      await rm(dir, { recursive: true, force: true });
    },
  };
}
