/**
 * Detects which cgroups this machine has and where we may create groups.
 *
 * Groups are created at the root of the hierarchy, or below our own group where we may not change the root
 * (in a container, in a service with delegation).
 */
import { readFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import type { Cgroups } from './cgroup.ts';
import * as files from './control-files.ts';
import { V1_CONTROLLERS, cgroupsV1, type V1Controller } from './v1.ts';
import { cgroupsV2 } from './v2.ts';

export interface CgroupMount {
  version: 'v1' | 'v2';
  dir: string;
  /** Controllers of a version 1 hierarchy; `name=…` for one without any. */
  controllers: string[];
  /** The directory of our own group, below `dir`. */
  own: string;
}

export interface DetectOptions {
  /** Name of this installation's parent group; may contain slashes. */
  prefix: string;
}

export async function detectCgroups({ prefix }: DetectOptions): Promise<Cgroups> {
  const mounts = parseCgroupMounts(
    readFileSync('/proc/self/mountinfo', 'utf8'),
    readFileSync('/proc/self/cgroup', 'utf8'),
  );
  const v1 = mounts.filter((mount) => mount.version === 'v1');
  if (v1.some((mount) => mount.controllers.some((name) => V1_CONTROLLERS.includes(name as V1Controller))))
    return openV1(mounts, prefix);
  const v2 = mounts.find((mount) => mount.version === 'v2');
  if (v2 !== undefined) return openV2(v2, prefix);
  throw new CayError('unavailable', 'Cannot limit sandboxes: no cgroup filesystem is mounted', {
    hint: 'mount cgroup2 at /sys/fs/cgroup',
  });
}

function openV1(mounts: CgroupMount[], prefix: string): Cgroups {
  const used = mounts.filter((mount) =>
    mount.controllers.some((name) => V1_CONTROLLERS.includes(name as V1Controller)),
  );
  const atRoot = used.every((mount) => canMake(join(mount.dir, prefix)));
  const base = (mount: CgroupMount) => (atRoot ? mount.dir : join(mount.dir, mount.own));
  const controllers: Partial<Record<V1Controller, string>> = {};
  for (const name of V1_CONTROLLERS) {
    const mount = used.find((candidate) => candidate.controllers.includes(name));
    // A controller in which we may create no group counts as missing.
    if (mount !== undefined && canMake(join(base(mount), prefix))) controllers[name] = base(mount);
  }
  const others = mounts.filter((mount) => !used.includes(mount)).map(base);
  const cpu = used.find((mount) => mount.controllers.includes('cpu'));
  return cgroupsV1({
    controllers,
    others,
    prefix,
    atRoot,
    serverDir: atRoot ? serverDir(cpu, prefix) : undefined,
  });
}

function openV2(mount: CgroupMount, prefix: string): Cgroups {
  const atRoot = canMake(join(mount.dir, prefix));
  const path = join(atRoot ? '' : relative('/', join('/', mount.own)), prefix);
  const dir = join(mount.dir, path);
  if (!canMake(dir)) {
    throw new CayError('unavailable', `Cannot limit sandboxes: cgroup "${dir}" cannot be made`, {
      hint: 'run as root, or in a service with Delegate=yes',
    });
  }
  const parts = path.split('/');
  // A controller works in a group only if every group above delegates it.
  const start = atRoot ? 0 : relative('/', join('/', mount.own)).split('/').filter(Boolean).length;
  for (let depth = start; depth <= parts.length; depth += 1)
    handDown(join(mount.dir, ...parts.slice(0, depth)));
  const controllers = new Set(files.read(dir, 'cgroup.subtree_control').trim().split(' ').filter(Boolean));
  return cgroupsV2({
    mount: mount.dir,
    prefix: path,
    controllers,
    serverDir: atRoot ? serverDir(mount, prefix) : undefined,
  });
}

/**
 * Next to the group of the sandboxes, if no service manager has put the server into a group. If it is in its
 * own group already, an earlier server of the installation has started it.
 */
function serverDir(mount: CgroupMount | undefined, prefix: string): string | undefined {
  const name = `${prefix}-server`;
  return mount && (mount.own === '/' || mount.own === `/${name}`) ? join(mount.dir, name) : undefined;
}

function handDown(dir: string): void {
  const available = files.read(dir, 'cgroup.controllers').trim().split(' ');
  for (const name of ['cpu', 'memory', 'pids']) {
    if (!available.includes(name)) continue;
    try {
      files.write(dir, 'cgroup.subtree_control', `+${name}`);
    } catch (error) {
      const errno = files.errnoOf(error);
      // A group other than the root that delegates controllers may have no processes: ours move one level
      // down.
      if (errno === 'EBUSY') {
        moveProcesses(dir, join(dir, 'supervisor'));
        files.write(dir, 'cgroup.subtree_control', `+${name}`);
      } else if (errno !== 'EACCES' && errno !== 'EPERM' && errno !== 'EROFS') throw error;
    }
  }
}

function moveProcesses(from: string, to: string): void {
  files.makeGroup(to);
  for (const pid of files.parseProcesses(files.read(from, 'cgroup.procs'))) {
    try {
      files.write(to, 'cgroup.procs', pid);
    } catch (error) {
      // The process has ended meanwhile.
      if (files.errnoOf(error) !== 'ESRCH') throw error;
    }
  }
}

function canMake(dir: string): boolean {
  try {
    files.makeGroup(dir);
    return true;
  } catch {
    return false;
  }
}

/**
 * From the texts of `/proc/self/mountinfo` and `/proc/self/cgroup`. The first mount of a hierarchy counts.
 */
export function parseCgroupMounts(mountinfo: string, selfCgroup: string): CgroupMount[] {
  const own = new Map<string, string>();
  for (const line of selfCgroup.split('\n')) {
    const [id, names, ...path] = line.split(':');
    if (id === undefined || names === undefined) continue;
    own.set(id === '0' ? '' : names, path.join(':'));
  }
  const mounts: CgroupMount[] = [];
  for (const line of mountinfo.split('\n')) {
    const [left, right] = line.split(' - ');
    const [, , , root, dir] = left?.split(' ') ?? [];
    const [type, , superOptions] = right?.split(' ') ?? [];
    if (root === undefined || dir === undefined || (type !== 'cgroup' && type !== 'cgroup2')) continue;
    const controllers =
      type === 'cgroup2'
        ? []
        : (superOptions ?? '')
            .split(',')
            .filter(
              (name) =>
                !['rw', 'ro', 'xattr', 'noprefix', 'clone_children'].includes(name) &&
                !name.startsWith('release_agent'),
            );
    const key = controllers.join(',');
    const version = type === 'cgroup2' ? 'v2' : 'v1';
    if (mounts.some((mount) => mount.version === version && mount.controllers.join(',') === key)) continue;
    const path = own.get(key) ?? '/';
    // In a container the mount shows only a part of the hierarchy.
    const shown =
      root !== '/' && (path === root || path.startsWith(`${root}/`)) ? path.slice(root.length) || '/' : path;
    mounts.push({ version, dir: unescapeMount(dir), controllers, own: shown });
  }
  return mounts;
}

/** mountinfo writes spaces and the like as octal numbers. */
function unescapeMount(path: string): string {
  return path.replace(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
