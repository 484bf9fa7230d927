import { colour, note, print } from '../lib/output.ts';
import { cliFileOf } from '../lib/settings.ts';

export function printKey(key: string, dataDir: string): void {
  print(`  API key  ${key}`);
  note(colour.dim(`           shown this once; the command line finds it in ${cliFileOf(dataDir)}`));
}
