/** The cgroups of a cluster: one of its own in each hierarchy, with those of all pods below it. */
import { existsSync, globSync, readFileSync, readdirSync } from 'node:fs';
import { mkdir, rmdir, writeFile } from 'node:fs/promises';

const REMOVE_MS = 20_000;

export function cgroupOf(directory: string): string {
  return directory.slice(directory.lastIndexOf('/'));
}

/** The hierarchies of version 1, or the one of version 2. */
function hierarchies(): string[] {
  if (existsSync('/sys/fs/cgroup/cgroup.controllers')) return ['/sys/fs/cgroup'];
  return readdirSync('/sys/fs/cgroup').map((name) => `/sys/fs/cgroup/${name}`);
}

export async function makeCgroups(cgroup: string): Promise<void> {
  await Promise.all(hierarchies().map((path) => mkdir(path + cgroup, { recursive: true })));
  // In version 1 nobody may enter a cpuset that has not been told its processors.
  const cpuset = '/sys/fs/cgroup/cpuset';
  for (const file of ['cpuset.cpus', 'cpuset.mems']) {
    if (existsSync(`${cpuset}/${file}`))
      await writeFile(`${cpuset}${cgroup}/${file}`, readFileSync(`${cpuset}/${file}`));
  }
}

/** Processes that were killed may take a moment to leave. */
export async function removeCgroups(cgroup: string): Promise<void> {
  const deadline = Date.now() + REMOVE_MS;
  const below = async (path: string): Promise<void> => {
    for (const entry of readdirSync(path, { withFileTypes: true }))
      if (entry.isDirectory()) await below(`${path}/${entry.name}`);
    await rmdir(path);
  };
  for (const path of hierarchies().map((hierarchy) => hierarchy + cgroup)) {
    while (existsSync(path) && Date.now() < deadline) {
      await below(path).catch(() => new Promise((resolve) => setTimeout(resolve, 100)));
    }
  }
}

/** How long a pod has used the processor, as Linux counts it. */
export function cpuUsageMsOf(directory: string): (pod: string) => number {
  const first = existsSync('/sys/fs/cgroup/cpuacct');
  const root = `${first ? '/sys/fs/cgroup/cpuacct' : '/sys/fs/cgroup'}${cgroupOf(directory)}/kubepods`;
  return (pod) => {
    const [found] = globSync(`${root}/**/*pod{${pod},${pod.replaceAll('-', '_')}}*`);
    if (found === undefined) throw new Error(`The pod "${pod}" has no cgroup below "${root}"`);
    if (first) return Number(readFileSync(`${found}/cpuacct.usage`, 'utf8')) / 1e6;
    return Number(/^usage_usec (\d+)/m.exec(readFileSync(`${found}/cpu.stat`, 'utf8'))?.[1]) / 1e3;
  };
}
