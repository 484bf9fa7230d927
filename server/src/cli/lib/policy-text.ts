import type { PolicyFacts } from '@cay/sdk/client';
import { formatBytes } from './units.ts';

/** What the operator allows, in one line. */
export function policyText({ runtimes, images, maxima }: PolicyFacts): string {
  const { cpus, memoryBytes, diskBytes, pids, openFiles, timeoutMs, commands } = maxima;
  const any = (text: string, value: number | null) => (value === null ? 'any' : text);
  return [
    `runtimes ${runtimes?.join(', ') ?? 'all'}`,
    `images ${images?.join(', ') ?? 'all'}`,
    `at most cpus ${cpus ?? 'any'}, memory ${any(formatBytes(memoryBytes), memoryBytes)}, disk ${any(formatBytes(diskBytes), diskBytes)}, ` +
      `pids ${pids ?? 'any'}, open files ${openFiles}, timeout ${any(`${(timeoutMs ?? 0) / 1000} s`, timeoutMs)}, commands ${commands}`,
  ].join('; ');
}
