/** Sizes, times and pairs as people write and read them. */
import { InvalidArgumentError } from 'commander';
import * as units from '../../lib/units.ts';

/** The same as an argument of the command line, whose parser wants its own error. */
const argument =
  <T>(parse: (text: string) => T) =>
  (text: string): T => {
    try {
      return parse(text);
    } catch (error) {
      if (!(error instanceof units.UnitError)) throw error;
      throw new InvalidArgumentError(`${error.message.charAt(0).toUpperCase()}${error.message.slice(1)}.`);
    }
  };

export const parseSize = argument(units.parseSize);
export const parseDuration = argument(units.parseDuration);
export const parseCpus = argument(units.parseCpus);
export const parseCount = argument(units.parseCount);
export const parsePort = argument(units.parsePort);
export { formatDuration, formatSize } from '../../lib/units.ts';

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

export function formatAge(ms: number): string {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 120) return `${seconds}s`;
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
