import { errorColour } from './output.ts';
import { formatAge, formatBytes } from './units.ts';

export interface Progress {
  bytes(done: number): void;
  finish(): void;
}

const EVERY_MS = 100;
/** What is over sooner needs no sign of life, and no line is left of it. */
const QUIET_MS = 1000;

/** One line on a terminal that is written over; nothing without a terminal. */
export function showProgress(label: string, total?: number): Progress {
  if (!process.stderr.isTTY) return { bytes: () => {}, finish: () => {} };
  const begun = performance.now();
  let shownAt = 0;
  let last = 0;
  const draw = (now: number) => {
    shownAt = now;
    process.stderr.write(`\r\u001b[K${progressLine(label, { done: last, total, ms: now - begun })}`);
  };
  return {
    bytes(done) {
      last = done;
      const now = performance.now();
      if (now - begun >= QUIET_MS && now - shownAt >= EVERY_MS) draw(now);
    },
    finish() {
      if (shownAt === 0) return;
      draw(performance.now());
      process.stderr.write('\n');
    },
  };
}

/** Percent and the remaining time are shown where the total is known. */
export function progressLine(
  label: string,
  { done, total, ms }: { done: number; total?: number; ms: number },
): string {
  const rate = done / Math.max(ms / 1000, 0.001);
  const parts = [label, formatBytes(done)];
  if (total !== undefined && total > 0) {
    parts.push(`of ${formatBytes(total)}`, `${Math.min(100, Math.floor((done / total) * 100))} %`);
    if (done < total && rate > 0) parts.push(`${formatAge(((total - done) / rate) * 1000)} left`);
  }
  return `${parts.join(' ')} ${errorColour.dim(`${formatBytes(Math.round(rate))}/s`)}`;
}
