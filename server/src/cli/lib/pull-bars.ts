/** How far a pull is, as one line for each layer on a terminal, written over; nothing without a terminal. */
import type { PullLine, PullProgress } from '@cay/sdk/client';
import { errorColour } from './output.ts';
import { formatBytes } from './units.ts';

const WIDTH = 24;
const EVERY_MS = 100;
/** More would scroll away. */
const MOST_LAYERS = 12;

/** The images that the stream ends with. */
export async function followPull(label: string, lines: AsyncIterable<PullLine>) {
  const bars = pullBars(label);
  try {
    for await (const { progress, images } of lines) {
      if (progress) bars.show(progress);
      if (images) return images;
    }
    return [];
  } finally {
    bars.finish();
  }
}

function pullBars(label: string): { show(progress: PullProgress): void; finish(): void } {
  if (!process.stderr.isTTY) return { show: () => {}, finish: () => {} };
  let drawn = 0;
  let shownAt = 0;
  let last: PullProgress | undefined;
  const draw = (progress: PullProgress) => {
    const lines = barLines(label, progress);
    process.stderr.write(
      `${drawn > 0 ? `\u001b[${drawn}A` : ''}${lines.map((line) => `\r\u001b[K${line}\n`).join('')}`,
    );
    drawn = lines.length;
    shownAt = performance.now();
  };
  return {
    show(progress) {
      last = progress;
      // An image that is here shows nothing.
      if (progress.layers.length > 0 && performance.now() - shownAt >= EVERY_MS) draw(progress);
    },
    finish() {
      if (drawn > 0 && last) draw(last);
    },
  };
}

export function barLines(label: string, { layers, fetchedBytes, totalBytes }: PullProgress): string[] {
  const shown = layers.slice(0, MOST_LAYERS).map(({ digest, state, fetchedBytes: done, totalBytes: all }) => {
    const name = digest.slice('sha256:'.length, 'sha256:'.length + 12);
    return `  ${errorColour.dim(name)} ${bar(done, all)} ${formatBytes(all).padStart(9)} ${state}`;
  });
  const more = layers.length - shown.length;
  return [
    `${label} ${formatBytes(fetchedBytes)} of ${formatBytes(totalBytes)}`,
    ...shown,
    ...(more > 0 ? [`  and ${more} more layers`] : []),
  ];
}

function bar(done: number, all: number): string {
  const filled = all === 0 ? WIDTH : Math.round((Math.min(done, all) / all) * WIDTH);
  return `${'█'.repeat(filled)}${'░'.repeat(WIDTH - filled)}`;
}
