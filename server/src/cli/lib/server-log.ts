import { pino, type Logger } from 'pino';
import { REDACTED } from '../../control/events/redact.ts';

/** One JSON object a line on standard error, which is the log file of a server in the background. */
export function serverLog(level: string, dest: number | string = 2): Logger {
  return pino({ level, redact: REDACTED }, pino.destination({ dest, sync: true }));
}
