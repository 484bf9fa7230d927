/** Our terminal without line editing: every key arrives as it is. */
import { readFileSync } from 'node:fs';
import { detachKeys } from './detach-keys.ts';

/** What a terminal does with these keys where nobody reads them. */
const SIGNALS: Readonly<Record<number, NodeJS.Signals>> = {
  0x03: 'SIGINT',
  0x1a: 'SIGTSTP',
  0x1c: 'SIGQUIT',
};

/** Every key as it is, also ^C and ^Z. Undone at the latest when this process exits. */
export function rawTerminal(): () => void {
  const { stdin } = process;
  stdin.setRawMode(true);
  const restore = () => {
    process.off('exit', restore);
    stdin.setRawMode(false);
  };
  process.on('exit', restore);
  return restore;
}

/**
 * Reads the keys of a terminal whose input nobody gets: Ctrl-P Ctrl-Q calls `detach`, and the others that
 * mean signals are signals to this process. Does nothing in the background, where reading would stop the
 * process.
 */
export function watchKeys(detach: () => void): () => void {
  const { stdin } = process;
  if (!stdin.isTTY || !isForeground()) return () => {};
  const take = detachKeys();
  let restore = rawTerminal();
  const onData = (data: Buffer) => {
    const typed = take(data);
    for (const key of typed.pass) {
      const signal = SIGNALS[key];
      if (signal === 'SIGTSTP') restore();
      if (signal) process.kill(process.pid, signal);
    }
    if (typed.detach) detach();
  };
  const onContinue = () => {
    if (isForeground()) restore = rawTerminal();
  };
  stdin.on('data', onData);
  process.on('SIGCONT', onContinue);
  return () => {
    stdin.off('data', onData).pause();
    process.off('SIGCONT', onContinue);
    restore();
  };
}

/** Whether this process is what the terminal's keys go to. */
function isForeground(): boolean {
  try {
    // After the name of the program: state, parent, process group, session, terminal, its foreground group.
    const [, , group, , , foreground] = readFileSync('/proc/self/stat', 'utf8')
      .split(') ')
      .at(-1)!
      .split(' ');
    return group === foreground;
  } catch {
    return true;
  }
}
