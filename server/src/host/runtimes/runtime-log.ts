import { readFileSync } from 'node:fs';

const LOG_BYTES = 16_384;
const MAX_ERRORS = 4;

/**
 * The errors in the runtime's log, the first of which is often the cause. Lines of text with `msg=`, or JSON.
 */
export function lastWords(log: string): string {
  const lines = log
    .slice(-LOG_BYTES)
    .split('\n')
    .filter((line) => line.trim() !== '');
  const errors = lines.filter((line) => /level"?[=:]\s*"?(error|fatal)/.test(line));
  const said = (errors.length > 0 ? errors.slice(0, MAX_ERRORS) : lines.slice(-1)).map((line) => {
    const message =
      /msg="((?:[^"\\]|\\.)*)"/.exec(line)?.[1] ?? /"msg":\s*"((?:[^"\\]|\\.)*)"/.exec(line)?.[1];
    return message === undefined ? line.trim() : message.replaceAll('\\"', '"').trim();
  });
  return said.join('; ');
}

/** Empty if there is none. */
export function readLog(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch {
    return '';
  }
}
