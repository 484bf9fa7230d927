import { bootId, isAlive } from '../../lib/proc.ts';
import { readFileOr, serverFileOf, type ServerFile } from './settings.ts';

/** The server of a data directory, if its process is alive: the file alone may be a killed one's. */
export function runningServer(dataDir: string): ServerFile | undefined {
  const file = readFileOr<ServerFile>(serverFileOf(dataDir));
  return file && (file.bootId ?? bootId()) === bootId() && isAlive(file.pid, file.startTime)
    ? file
    : undefined;
}
