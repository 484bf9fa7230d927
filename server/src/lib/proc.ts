/** What `/proc` says about one process. Synchronous: these reads never wait for a disk. */
import { readFileSync } from 'node:fs';

export interface ProcessStat {
  name: string;
  /** One letter, such as `S`, `R` or `Z`. */
  state: string;
  parent: number;
  /** Clock ticks since boot. Together with the number it identifies a process for good. */
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

/** The name stands in parentheses and may itself have spaces and parentheses in it. */
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

/** The hard limit of open files, which nothing that we start can exceed. */
export function openFilesHardLimit(): number {
  const line = /^Max open files\s+\S+\s+(\S+)/m.exec(readFileSync('/proc/self/limits', 'latin1'));
  const limit = Number(line?.[1]);
  return Number.isInteger(limit) ? limit : Number.MAX_SAFE_INTEGER;
}
