/**
 * Limits of the kernel that all sandboxes on it share, whatever their ids are: inotify is counted for whoever
 * made their user namespaces, which is root, and terminals for the whole machine. Each instance, watch and
 * terminal also counts as memory of the sandbox that has it, and the sandbox's own memory limit is the bound
 * that holds per sandbox. So the shared ones are raised out of reach.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

interface KernelLimit {
  /** As `sysctl` names it. */
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

/** Those below what sandboxes on this kernel need. One that this kernel does not have is not low. */
export function lowKernelLimits(root = '/proc/sys'): LowLimit[] {
  return LIMITS.flatMap((limit) => {
    const value = read(fileOf(root, limit));
    return value !== undefined && value < limit.atLeast ? [{ ...limit, value }] : [];
  });
}

/**
 * Raises those that are too low, never lowers one. What may not be written stays low, and `cay doctor` tells
 * of it.
 */
export function raiseKernelLimits(root = '/proc/sys'): void {
  for (const limit of lowKernelLimits(root)) {
    try {
      writeFileSync(fileOf(root, limit), `${limit.atLeast}\n`, { flag: 'r+' });
    } catch {
      // Read-only in a container, or without the right: sandboxes work, and share what there is.
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
