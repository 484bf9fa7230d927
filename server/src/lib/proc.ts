/** What `/proc` says about one process. Synchronous: these reads never wait for a disk. */
import { readFileSync, writeFileSync } from 'node:fs';

export interface ProcessStat {
  name: string;
  /** One letter, such as `S`, `R` or `Z`. */
  state: string;
  parent: number;
  /** Clock ticks since boot. Together with the pid it identifies a process uniquely. */
  startTime: number;
}

/** Undefined if there is no such process. */
export function processStat(pid: number): ProcessStat | undefined {
  let text: string;
  try {
    text = readFileSync(`/proc/${pid}/stat`, 'latin1');
  } catch {
    return undefined;
  }
  return parseProcessStat(text);
}

/** The name is in parentheses and may itself contain spaces and parentheses. */
export function parseProcessStat(text: string): ProcessStat | undefined {
  const open = text.indexOf('(');
  const close = text.lastIndexOf(')');
  if (open < 0 || close < open) return undefined;
  const fields = text
    .slice(close + 2)
    .trim()
    .split(' ');
  const [state, parent] = fields;
  const startTime = Number(fields[19]);
  if (state === undefined || !Number.isInteger(startTime)) return undefined;
  return { name: text.slice(open + 1, close), state, parent: Number(parent), startTime };
}

/** True if it exists and has not ended: a zombie only waits for its parent. */
export function isAlive(pid: number, startTime?: number): boolean {
  const stat = processStat(pid);
  if (stat === undefined || stat.state === 'Z' || stat.state === 'X') return false;
  return startTime === undefined || stat.startTime === startTime;
}

/**
 * Identifies this boot of the machine: a pid and its start time are unique within one boot only.
 * `CAY_BOOT_ID_FILE` names another file to read it from, so that a test can simulate a reboot.
 */
export function bootId(): string {
  try {
    return readFileSync(
      process.env['CAY_BOOT_ID_FILE'] ?? '/proc/sys/kernel/random/boot_id',
      'latin1',
    ).trim();
  } catch {
    return 'unknown';
  }
}

/** The hard limit of open files, which nothing that we start can exceed. */
export function openFilesHardLimit(): number {
  const line = /^Max open files\s+\S+\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'));
  const limit = Number(line?.[1]);
  return Number.isInteger(limit) ? limit : Number.MAX_SAFE_INTEGER;
}

/** The out-of-memory score of a process, from -1000 (never killed) to 1000. */
export function oomScore(pid: number | 'self'): number | undefined {
  try {
    return Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'latin1'));
  } catch {
    return undefined;
  }
}

/** Lowers the out-of-memory score of this process. Children inherit it. False if that is not allowed here. */
export function lowerOomScore(score: number): boolean {
  if ((oomScore('self') ?? 0) <= score) return true;
  try {
    writeFileSync('/proc/self/oom_score_adj', String(score));
    return true;
  } catch {
    // It takes a privilege that not every root has.
    return false;
  }
}
