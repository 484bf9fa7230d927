/** What processes and the machine have used of the processors, in ticks of the kernel. */
import { readFile } from 'node:fs/promises';

export const TICKS_PER_SECOND = 100;

/** User and system time of a process. */
export async function processTicks(pid: number | 'self'): Promise<number> {
  const fields = (await readFile(`/proc/${pid}/stat`, 'utf8')).replace(/^.*\) /s, '').split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

/** User, nice, system, interrupts of both kinds: all but idle, waiting and stolen. */
export async function machineTicks(): Promise<number> {
  const line = (await readFile('/proc/stat', 'utf8')).split('\n')[0]!.split(/ +/).slice(1).map(Number);
  return [0, 1, 2, 5, 6].reduce((sum, index) => sum + (line[index] ?? 0), 0);
}
