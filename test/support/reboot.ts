/**
 * What a restart of the machine leaves of an installation whose server has been killed: its files. Every
 * process of a sandbox ends, and cgroups, mounts and loop devices are gone. Nothing else on this machine is
 * touched.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, globSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

export async function reboot(engineDir: string): Promise<void> {
  const { name } = JSON.parse(readFileSync(join(engineDir, 'installation.json'), 'utf8')) as { name: string };
  const groups = () =>
    globSync(
      ['/sys/fs/cgroup', '/sys/fs/cgroup/*'].flatMap((root) => [
        `${root}/cay-${name}`,
        `${root}/cay-${name}-server`,
        `${root}/cay-${name}/**/`,
      ]),
    );
  for (let round = 0; groups().length > 0; round++) {
    if (round > 500) throw new Error(`Cgroups do not go away: ${groups().join(', ')}`);
    // The innermost first.
    for (const group of groups().toSorted((one, other) => other.length - one.length)) end(group);
    await sleep(10);
  }
  const mounts = readFileSync('/proc/self/mounts', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[1] ?? '')
    .filter((path) => path.startsWith(`${engineDir}/`));
  for (const path of mounts.toReversed()) execFileSync('umount', [path]);
  for (const file of globSync('/sys/block/loop*/loop/backing_file')) {
    const loop = file.split('/')[3]!;
    if (read(file).startsWith(`${engineDir}/`)) execFileSync('losetup', ['-d', `/dev/${loop}`]);
  }
}

function end(group: string): void {
  for (const [file, value] of [
    // What is frozen does not hear the signal.
    ['freezer.state', 'THAWED'],
    ['cgroup.freeze', '0'],
  ] as const)
    if (existsSync(join(group, file))) ignore(() => writeFileSync(join(group, file), value));
  for (const pid of read(join(group, 'cgroup.procs')).split('\n'))
    if (pid !== '') ignore(() => process.kill(Number(pid), 'SIGKILL'));
  ignore(() => rmdirSync(group));
}

function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}

/** Processes end and groups empty by themselves meanwhile. */
function ignore(operation: () => void): void {
  try {
    operation();
  } catch {
    return;
  }
}
