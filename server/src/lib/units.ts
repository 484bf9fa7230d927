/** Sizes, times and numbers as people write them. What cannot be read is a `UnitError`. */

const SIZES: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };
const TIMES: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** The message says how it is written, as the end of a sentence: `must be a whole number`. */
export class UnitError extends Error {}

/** `512m`, `1.5g`, `2GiB`, or plain bytes. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?$/i.exec(text);
  if (!match) throw new UnitError('a size is a number with k, m, g or t, such as 512m');
  return Math.round(Number(match[1]) * SIZES[match[2]!.toLowerCase() || 'b']!);
}

/** `500ms`, `30s`, `5m`, `2h`, `1d`, or plain seconds. In milliseconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text);
  if (!match)
    throw new UnitError(
      'a time is a number with ms, s, m, h or d, such as 30s; without a unit it is seconds',
    );
  return Math.round(Number(match[1]) * TIMES[match[2] ?? 's']!);
}

export function parseCpus(text: string): number {
  const cpus = Number(text);
  if (text.trim() === '' || !Number.isFinite(cpus) || cpus <= 0)
    throw new UnitError('a number of cores is above 0, such as 2 or 0.5');
  return cpus;
}

export function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new UnitError('this must be a whole number');
  return Number(text);
}

/** How many times something may be given away: above 0. */
export function parseTimes(text: string): number {
  const times = Number(text);
  if (text.trim() === '' || !Number.isFinite(times) || times <= 0)
    throw new UnitError('this must be a number above 0, such as 1.5');
  return times;
}

export function parsePort(text: string): number {
  const port = parseCount(text);
  if (port < 1 || port > 65_535) throw new UnitError('a port is 1 to 65535');
  return port;
}

/** `127.0.0.1:7070`, `[::1]:7070`, or `:7070` for this machine alone. */
export function parseHostPort(text: string): { host: string; port: number } {
  const match = /^(?:\[([0-9a-f:.]+)\]|([^:[\]]*)):(\d{1,5})$/i.exec(text);
  const port = Number(match?.[3]);
  if (!match || port > 65_535)
    throw new UnitError('this must be HOST:PORT, such as 127.0.0.1:7070 or [::1]:7070');
  return { host: match[1] ?? (match[2] || '127.0.0.1'), port };
}

/** As flags are written: `16m`, `2g`, `1536k`. */
export function formatSize(bytes: number): string {
  for (const unit of ['t', 'g', 'm', 'k'] as const)
    if (bytes >= SIZES[unit]! && bytes % SIZES[unit]! === 0) return `${bytes / SIZES[unit]!}${unit}`;
  return String(bytes);
}

/** As flags are written: `90s`, `5m`, `2h`. */
export function formatDuration(ms: number): string {
  for (const unit of ['d', 'h', 'm', 's'] as const)
    if (ms >= TIMES[unit]! && ms % TIMES[unit]! === 0) return `${ms / TIMES[unit]!}${unit}`;
  return `${ms}ms`;
}
