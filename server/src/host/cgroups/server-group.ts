/**
 * A group for the server itself, next to the group of all its sandboxes: under CPU contention the server gets
 * most of it, and where the kernel can, some memory is reserved for it. It is created only if the server is
 * in the root of the hierarchy: a group of a service manager is left alone.
 */
import * as files from './control-files.ts';

/** Ten times the share of all sandboxes together. */
const CPU_SHARES = 10_240;
const CPU_WEIGHT = 1000;
const MEMORY_LOW = 256 * 1024 * 1024;

export interface ServerGroup {
  /** Moves this process, and so its future children, unless they join a group of their own as runtimes do. */
  enter(): void;
  /** Does nothing if absent; false while a server is in it. */
  remove(): boolean;
}

/** `dir` is undefined where the group cannot be created. */
export function serverGroup(dir: string | undefined): ServerGroup {
  return {
    enter() {
      if (dir === undefined) return;
      files.makeGroup(dir);
      files.writeIfThere(dir, 'cpu.shares', CPU_SHARES);
      files.writeIfThere(dir, 'cpu.weight', CPU_WEIGHT);
      files.writeIfThere(dir, 'memory.low', MEMORY_LOW);
      files.write(dir, 'cgroup.procs', process.pid);
    },
    remove: () => dir === undefined || files.removeGroup(dir),
  };
}
