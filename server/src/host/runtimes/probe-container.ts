/**
 * The smallest container that proves a runtime: the host's own `true`, under everything that a sandbox is
 * under.
 */
import { chownSync, existsSync, lstatSync, mkdirSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { randomName } from '../../lib/random-name.ts';
import type { Bundled } from './bundle.ts';
import type { IdMapping } from './runtime.ts';

const HOST_DIRS = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];
const MOUNT_POINTS = ['proc', 'dev', 'sys', 'run', 'tmp'];

/** `dir` is the probe's own: what one that was killed left there goes first. */
export function probeContainer(ids: IdMapping, dir: string): { container: Bundled; remove: () => void } {
  rmSync(dir, { recursive: true, force: true });
  const rootDir = join(dir, 'root');
  const socketDir = join(dir, 'socket');
  const binds: Bundled['binds'] = [];
  // The mapped root has to pass through all of them.
  for (const path of [dir, rootDir, socketDir]) {
    mkdirSync(path, { recursive: true });
    chownSync(path, ids.hostId, ids.hostId);
  }
  for (const name of MOUNT_POINTS) {
    mkdirSync(join(rootDir, name));
    chownSync(join(rootDir, name), ids.hostId, ids.hostId);
  }
  for (const name of HOST_DIRS) {
    const source = `/${name}`;
    if (!existsSync(source)) continue;
    if (lstatSync(source).isSymbolicLink()) symlinkSync(readlinkSync(source), join(rootDir, name));
    else {
      mkdirSync(join(rootDir, name));
      binds.push({ source, target: source, readOnly: true });
    }
  }
  const container = {
    // Also the name of a cgroup, which several installations on one machine must not share.
    name: `probe-${randomName(8)}`,
    bundleDir: dir,
    rootDir,
    readOnlyRoot: false,
    socketDir,
    guestBinary: '/usr/bin/true',
    binds,
    hostname: 'probe',
    openFiles: 1024,
  };
  return { container, remove: () => rmSync(dir, { recursive: true, force: true }) };
}
