/** What a run found: rows for people as a table, and the same as JSON. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { cpus, release, totalmem } from 'node:os';
import { join } from 'node:path';
import { findRunsc } from '../server/src/host/runtimes/find-runsc.ts';

export type Environment = Record<string, string | number>;

export interface Row {
  what: string;
  /** Section and name: the same in every run. Set by the report. */
  key?: string;
  value: number;
  unit: 'ms' | 'MB/s' | 'MB' | 'x' | '/s' | 'errors' | 'requests' | '% of a core';
  p99?: number;
  /** What the figure aims at, and whether less or more is better. */
  aim?: { value: number; better: 'less' | 'more' };
}

export class Report {
  readonly rows: Row[] = [];
  #section = '';
  #main = '';

  section(name: string): void {
    this.#section = name;
  }

  /** A row whose name begins with "…" belongs to the one before. */
  add(row: Row): void {
    const what = row.what.trim();
    if (!what.startsWith('…')) this.#main = what;
    const name = what.startsWith('…') ? `${this.#main} ${what}` : what;
    this.rows.push({ ...row, key: `${this.#section}: ${name}` });
    console.log(line(row));
  }

  save(dir: string): string {
    mkdirSync(dir, { recursive: true });
    const path = join(dir, `${new Date().toISOString().replaceAll(/[:.]/g, '-')}.json`);
    writeFileSync(path, JSON.stringify({ environment: environment(), rows: this.rows }, null, 2));
    return path;
  }
}

function line({ what, value, unit, p99, aim }: Row): string {
  const figure = `${value.toFixed(value < 10 ? 2 : 0)} ${unit}`;
  const tail = p99 === undefined ? '' : `p99 ${p99.toFixed(p99 < 10 ? 2 : 0)}`;
  const met = aim && (aim.better === 'less' ? value <= aim.value : value >= aim.value);
  const goal = aim
    ? `${met ? 'met   ' : 'MISSED'} aim ${aim.better === 'less' ? '≤' : '≥'} ${aim.value} ${unit}`
    : '';
  return `${what.padEnd(58)} ${figure.padStart(12)}  ${tail.padEnd(10)} ${goal}`;
}

export function environment(): Environment {
  const version = (command: string) => {
    try {
      return execFileSync(command, ['--version'], { encoding: 'utf8' }).split('\n')[0] ?? '';
    } catch {
      return 'missing';
    }
  };
  return {
    node: process.version,
    kernel: release(),
    cores: cpus().length,
    cpu: cpus()[0]?.model ?? '',
    memoryGiB: Math.round(totalmem() / 2 ** 30),
    cgroups: readFileSync('/proc/mounts', 'utf8').includes(' /sys/fs/cgroup cgroup2 ') ? 'v2' : 'v1',
    runc: version('runc'),
    runsc: version(findRunsc()),
    docker: version('docker'),
  };
}
