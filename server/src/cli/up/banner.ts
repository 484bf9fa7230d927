import type { Settings } from '../../settings.ts';
import { colour, note } from '../lib/output.ts';
import { printKey } from './print-key.ts';

/** Prints the address of the server for the user at the terminal. */
export function banner(url: string, dataDir: string, settings: Settings, adminKey: string | undefined): void {
  if (!process.stderr.isTTY && !process.stdout.isTTY) return;
  note(`${colour.bold('cay')} is ready at ${colour.cyan(url)}`);
  note(`  data     ${dataDir}`);
  note(`  backend  ${backendText(settings)}`);
  if (adminKey !== undefined) printKey(adminKey, dataDir);
}

function backendText({ backend, runtime, pool }: Settings): string {
  const names = backend.join(',');
  if (names === 'memory') return 'memory: sandboxes are imitated in the server, without isolation';
  const isolation = runtime ?? 'the strongest isolation it has';
  return `${names}, ${isolation}${backend.includes('local') ? `, ${pool} kept ready` : ''}`;
}
