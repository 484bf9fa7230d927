/**
 * A group for the server itself, beside that of all its sandboxes: when both want the processor the server
 * gets most of it, and where the kernel can do so some memory is kept for it. It is made only in a hierarchy
 * in whose root the server is: a group that somebody else has put it into, such as a service manager, stays
 * its group.
 */
import * as files from './control-files.ts';

/** Ten times what all sandboxes together have. */
const CPU_SHARES = 10_240;
const CPU_WEIGHT = 1000;
const MEMORY_LOW = 256 * 1024 * 1024;

export interface ServerGroup {
  /**
   * Moves this process, and with it what it starts from now on, unless that joins a group of its own as
   * runtimes do.
   */
  enter(): void;
  /** Absent is done; false while a server is in it. */
  remove(): boolean;
}

/** `dir` is undefined where there is no place for it. */
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
