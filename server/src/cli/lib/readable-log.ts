/** Log lines for people: a server in a terminal shows these in place of JSON. */
import { errorColour, printable } from './output.ts';

const LEVELS: Record<number, string> = {
  10: errorColour.dim('trace'),
  20: errorColour.dim('debug'),
  30: errorColour.green('info '),
  40: errorColour.yellow('warn '),
  50: errorColour.red('error'),
  60: errorColour.red('fatal'),
};
/** Said by the line itself, or of no use in a terminal. */
const LEFT_OUT = new Set(['level', 'time', 'pid', 'hostname', 'msg', 'err']);

interface Line {
  level: number;
  time: number;
  msg?: string;
  err?: { message?: string; stack?: string };
  [field: string]: unknown;
}

export function readableLine(json: string): string {
  let line: Line;
  try {
    line = JSON.parse(json) as Line;
  } catch {
    return json;
  }
  const time = new Date(line.time).toTimeString().slice(0, 8);
  const fields = Object.entries(line)
    .filter(([name]) => !LEFT_OUT.has(name))
    .map(([name, value]) => `${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`);
  const parts = [errorColour.dim(time), LEVELS[line.level] ?? String(line.level), printable(line.msg ?? '')];
  if (line.err?.message !== undefined) parts.push(errorColour.red(printable(line.err.message)));
  if (fields.length > 0) parts.push(errorColour.dim(printable(fields.join(' '))));
  return `${parts.join(' ')}\n`;
}
