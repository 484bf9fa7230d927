import { pino, type Logger } from 'pino';
import { REDACTED } from '../../control/events/redact.ts';
import { readableLine } from './readable-log.ts';

/**
 * On standard error: readable lines in a terminal, else one JSON object a line. Of a server in the background
 * that is its log file.
 */
export function serverLog(level: string, dest: number | string = 2): Logger {
  const destination =
    dest === 2 && process.stderr.isTTY
      ? { write: (json: string) => void process.stderr.write(readableLine(json)) }
      : pino.destination({ dest, sync: true });
  return pino({ level, redact: REDACTED }, destination);
}
