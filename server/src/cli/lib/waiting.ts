import { errorColour } from './output.ts';
import { formatAge } from './units.ts';

/** What is over sooner needs no sign of life. */
const QUIET_MS = 1000;
const FRAMES = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'] as const;
const EVERY_MS = 100;

/**
 * One line on a terminal with the time since it was begun, until it is disposed of; nothing without a
 * terminal.
 */
export function showWaiting(label: string): Disposable {
  if (!process.stderr.isTTY) return { [Symbol.dispose]: () => {} };
  const begun = performance.now();
  let drawn = 0;
  const timer = setInterval(() => {
    const ms = performance.now() - begun;
    if (ms >= QUIET_MS)
      process.stderr.write(
        `\r\u001b[K${FRAMES[drawn++ % FRAMES.length]} ${label} ${errorColour.dim(formatAge(ms))}`,
      );
  }, EVERY_MS).unref();
  return {
    [Symbol.dispose]() {
      clearInterval(timer);
      if (drawn > 0) process.stderr.write('\r\u001b[K');
    },
  };
}
