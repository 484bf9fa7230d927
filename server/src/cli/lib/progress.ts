import { errorColour } from './output.ts';
import { formatBytes } from './units.ts';

export interface Progress {
  bytes(done: number): void;
  finish(): void;
}

const EVERY_MS = 100;

/** One line on a terminal that is written over; nothing where nobody looks. */
export function showProgress(label: string, total?: number): Progress {
  if (!process.stderr.isTTY) return { bytes: () => {}, finish: () => {} };
  const begun = performance.now();
  let shownAt = 0;
  let last = 0;
  const draw = () => {
    const seconds = (performance.now() - begun) / 1000;
    const share = total === undefined || total === 0 ? '' : ` ${Math.floor((last / total) * 100)} %`;
    process.stderr.write(
      `\r\u001b[K${label} ${formatBytes(last)}${share} ${errorColour.dim(`${formatBytes(Math.round(last / Math.max(seconds, 0.001)))}/s`)}`,
    );
  };
  return {
    bytes(done) {
      last = done;
      if (performance.now() - shownAt < EVERY_MS) return;
      shownAt = performance.now();
      draw();
    },
    finish() {
      draw();
      process.stderr.write('\n');
    },
  };
}
