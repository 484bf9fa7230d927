/** `cay up --detach`: starts the server as a process of its own and returns when it is ready. */
import { startedWith } from '../../settings/started-with.ts';
import type { Resolved } from '../../settings/resolve-settings.ts';
import { unknownVariables } from '../../settings/unknown-variables.ts';
import { startInBackground } from '../lib/background-server.ts';
import { colour, errorColour, note, print } from '../lib/output.ts';
import { runningServer } from '../lib/running-server.ts';
import { cliFileOf, dataDirOf, readFileOr, type CliFile } from '../lib/settings.ts';
import type { Composition } from '../verb.ts';
import { dataDirectoryTaken } from './data-directory-taken.ts';
import { printKey } from './print-key.ts';

export async function upDetached(composition: Composition, resolved: Resolved): Promise<void> {
  const dataDir = dataDirOf(resolved.settings);
  const running = runningServer(dataDir);
  if (running) throw dataDirectoryTaken(dataDir, running.pid);
  for (const sentence of unknownVariables(process.env)) note(`${errorColour.yellow('warning:')} ${sentence}`);
  const before = readFileOr<CliFile>(cliFileOf(dataDir))?.key;
  const server = await startInBackground(composition, dataDir, startedWith(resolved, process.env));
  print(`${colour.green('ready')} at ${server.url} (process ${server.pid})`);
  const key = readFileOr<CliFile>(cliFileOf(dataDir))?.key;
  if (key !== undefined && key !== before) printKey(key, dataDir);
}
