import { openLauncher, type Launcher } from './launcher.ts';

let shared: Launcher | undefined;
let holders = 0;

/**
 * From now until the returned function is called, `run()` starts programs through a launcher. Several may
 * hold it; the first names the program.
 */
export function holdLauncher(program: string, args: readonly string[]): () => void {
  shared ??= openLauncher(program, args);
  holders++;
  let held = true;
  return () => {
    if (!held) return;
    held = false;
    if (--holders > 0) return;
    shared?.close();
    shared = undefined;
  };
}

/** The launcher that is held, if any. */
export function sharedLauncher(): Launcher | undefined {
  return shared;
}
