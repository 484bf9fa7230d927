/** The smallest container that proves a runtime: the host's own `true`, under everything that a sandbox is under. */
import { chownSync, existsSync, lstatSync, mkdirSync, mkdtempSync, readlinkSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Bundled } from './bundle.ts';
import type { IdMapping } from './runtime.ts';

const HOST_DIRS = ['usr', 'bin', 'sbin', 'lib', 'lib32', 'lib64', 'libx32'];
const MOUNT_POINTS = ['proc', 'dev', 'sys', 'run', 'tmp'];

export function probeContainer(ids: IdMapping): { container: Bundled; remove: () => void } {
  const dir = mkdtempSync(join(tmpdir(), 'cay-probe-'));
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
  const name = `probe-${dir
    .slice(-6)
    .toLowerCase()
    .replace(/[^a-z0-9]/g, '0')}`;
  const container = {
    name,
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
