/**
 * Orphans on the machine: read from the directories, cgroups and mounts themselves, not
 * by way of the server, which is what is being tested.
 */
import { readFileSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';

/** Trees that are made before they are needed. */
const MOST_SPARE = 8;

interface EngineRecord {
  instance?: string;
  tree?: string;
  memory?: { image: string };
}

export async function leaks(engineDir: string): Promise<string[]> {
  const sandboxes = await records(join(engineDir, 'sandboxes'));
  const snapshots = await records(join(engineDir, 'snapshots'));
  const { name } = JSON.parse(await readFile(join(engineDir, 'installation.json'), 'utf8')) as {
    name: string;
  };
  const pooled = new Set<string>();
  for (const instance of await list(join(engineDir, 'instances'))) {
    if ((await list(join(engineDir, 'instances', instance))).includes('pooled')) pooled.add(instance);
  }
  const instances = new Set([...sandboxes.map(({ instance }) => instance), ...pooled]);
  const images = new Set([...sandboxes, ...snapshots].map(({ memory }) => memory?.image));
  const trees = new Set([...sandboxes, ...snapshots].map(({ tree }) => tree));
  const found: string[] = [];
  const spare: string[] = [];

  for (const place of [
    join(engineDir, 'instances'),
    join(engineDir, 'runtimes', 'runc'),
    join(engineDir, 'runtimes', 'runsc'),
    ...['memory', 'pids', 'freezer', 'cpu', '.'].map((controller) =>
      join('/sys/fs/cgroup', controller, `cay-${name}`),
    ),
  ]) {
    for (const entry of await list(place)) {
      const instance = /i-[a-z0-9]{20}/.exec(entry)?.[0];
      if (instance !== undefined && !instances.has(instance)) found.push(join(place, entry));
    }
  }
  for (const image of await list(join(engineDir, 'images')))
    if (!images.has(image)) found.push(join(engineDir, 'images', image));
  // Sandboxes' own trees; templates and those that wait for a sandbox have other names, or an instance that
  // waits.
  for (const tree of await list(join(engineDir, 'storage', 'pool', 'trees'))) {
    if (!trees.has(tree) && !pooled.has(tree) && !tree.startsWith('template-'))
      spare.push(join('trees', tree));
  }
  if (spare.length > MOST_SPARE) found.push(...spare);
  for (const path of await tempFiles(engineDir)) found.push(path);
  found.push(...processes(name));
  return found;
}

/** Processes that are in the installation's own group and in none of its instances'. */
function processes(installation: string): string[] {
  const found: string[] = [];
  const root = `/sys/fs/cgroup/pids/cay-${installation}`;
  try {
    for (const pid of readFileSync(join(root, 'cgroup.procs'), 'utf8').split('\n'))
      if (pid !== '') found.push(`process ${pid} in ${root}`);
  } catch {
    // No such group: nothing was left in it.
  }
  return found;
}

async function tempFiles(engineDir: string): Promise<string[]> {
  const found: string[] = [];
  for (const folder of ['sandboxes', 'snapshots']) {
    for (const file of await list(join(engineDir, folder)))
      if (!file.endsWith('.json')) found.push(join(engineDir, folder, file));
  }
  return found;
}

async function records(dir: string): Promise<EngineRecord[]> {
  const files = (await list(dir)).filter((file) => file.endsWith('.json'));
  return Promise.all(
    files.map(async (file) => JSON.parse(await readFile(join(dir, file), 'utf8')) as EngineRecord),
  );
}

async function list(dir: string): Promise<string[]> {
  return readdir(dir).catch(() => []);
}
