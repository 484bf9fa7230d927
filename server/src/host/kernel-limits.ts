/**
 * Kernel limits that all sandboxes share: inotify is counted for the creator of their user namespaces, which
 * is root, and terminals for the whole machine. Each inotify instance, watch and terminal also counts towards
 * the memory limit of its sandbox, which is the bound for one sandbox. So the shared limits are raised out of
 * reach.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface KernelLimit {
  /** The name that `sysctl` uses. */
  name: string;
  atLeast: number;
}

const LIMITS: readonly KernelLimit[] = [
  { name: 'fs.inotify.max_user_instances', atLeast: 16_777_216 },
  { name: 'fs.inotify.max_user_watches', atLeast: 268_435_456 },
  { name: 'kernel.pty.max', atLeast: 1_048_576 },
];

export interface LowLimit extends KernelLimit {
  value: number;
}

/**
 * Limits that are too low for sandboxes on this kernel. A limit that this kernel does not have is not too
 * low.
 */
export function lowKernelLimits(root = '/proc/sys'): LowLimit[] {
  return LIMITS.flatMap((limit) => {
    const value = read(fileOf(root, limit));
    return value !== undefined && value < limit.atLeast ? [{ ...limit, value }] : [];
  });
}

/**
 * Raises limits that are too low, never lowers one. A limit that cannot be written stays low, and `cay
 * doctor` reports it.
 */
export function raiseKernelLimits(root = '/proc/sys'): void {
  for (const limit of lowKernelLimits(root)) {
    try {
      writeFileSync(fileOf(root, limit), `${limit.atLeast}\n`, { flag: 'r+' });
    } catch {
      // Read-only in a container, or without the right: sandboxes then share what there is.
    }
  }
}

function fileOf(root: string, { name }: KernelLimit): string {
  return join(root, name.replaceAll('.', '/'));
}

function read(file: string): number | undefined {
  try {
    return Number.parseInt(readFileSync(file, 'utf8'), 10);
  } catch {
    return undefined;
  }
}
