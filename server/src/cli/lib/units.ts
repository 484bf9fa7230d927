/** Sizes, times and pairs as people write and read them. */
import { InvalidArgumentError } from 'commander';

const SIZES: Record<string, number> = { b: 1, k: 1024, m: 1024 ** 2, g: 1024 ** 3, t: 1024 ** 4 };
const TIMES: Record<string, number> = { ms: 1, s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/** `512m`, `1.5g`, `2GiB`, or plain bytes. */
export function parseSize(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([bkmgt]?)(?:i?b)?$/i.exec(text);
  if (!match) throw new InvalidArgumentError('A size is a number with k, m, g or t, such as 512m.');
  return Math.round(Number(match[1]) * SIZES[match[2]!.toLowerCase() || 'b']!);
}

/** `500ms`, `30s`, `5m`, `2h`, `1d`, or plain seconds. In milliseconds. */
export function parseDuration(text: string): number {
  const match = /^(\d+(?:\.\d+)?)(ms|s|m|h|d)?$/.exec(text);
  if (!match)
    throw new InvalidArgumentError(
      'A time is a number with ms, s, m, h or d, such as 30s; without a unit it is seconds.',
    );
  return Math.round(Number(match[1]) * TIMES[match[2] ?? 's']!);
}

/** `2026-01-31`, `2026-01-31T12:00:00Z`. */
export function parseMoment(text: string): Date {
  const at = Date.parse(text);
  if (Number.isNaN(at))
    throw new InvalidArgumentError('A moment is given as 2026-01-31 or 2026-01-31T12:00:00Z.');
  return new Date(at);
}

/** The same, or how long ago: `10m`. */
export function parseSince(text: string): Date {
  return /^\d+(\.\d+)?(ms|s|m|h|d)$/.test(text)
    ? new Date(Date.now() - parseDuration(text))
    : parseMoment(text);
}

export function parseCpus(text: string): number {
  const cpus = Number(text);
  if (text === '' || !Number.isFinite(cpus) || cpus <= 0)
    throw new InvalidArgumentError('A number of cores is above 0, such as 2 or 0.5.');
  return cpus;
}

export function parseCount(text: string): number {
  if (!/^\d{1,15}$/.test(text)) throw new InvalidArgumentError('This must be a whole number.');
  return Number(text);
}

/** How many times something may be given away: above 0. */
export function parseTimes(text: string): number {
  const times = Number(text);
  if (text === '' || !Number.isFinite(times) || times <= 0)
    throw new InvalidArgumentError('This must be a number above 0, such as 1.5.');
  return times;
}

export function parsePort(text: string): number {
  const port = parseCount(text);
  if (port < 1 || port > 65_535) throw new InvalidArgumentError('A port is 1 to 65535.');
  return port;
}

/** Gathers `K=V`. With `inherit`, a name alone takes the value that it has in this environment. */
export function pairs(
  inherit?: NodeJS.ProcessEnv,
): (text: string, before?: Record<string, string>) => Record<string, string> {
  return (text, before = {}) => {
    const at = text.indexOf('=');
    if (at > 0) return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
    const inherited = at < 0 && text !== '' ? inherit?.[text] : undefined;
    if (inherited !== undefined) return { ...before, [text]: inherited };
    if (inherit && at < 0 && text !== '') return before;
    throw new InvalidArgumentError('This must be KEY=VALUE.');
  };
}

export function formatBytes(bytes: number | null): string {
  if (bytes === null) return '-';
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes;
  let unit = -1;
  do {
    value /= 1024;
    unit += 1;
  } while (value >= 1023.95 && unit < 3);
  return `${value.toFixed(value < 10 ? 1 : 0)} ${['KiB', 'MiB', 'GiB', 'TiB'][unit]}`;
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

export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
