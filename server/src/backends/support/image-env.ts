import type { Guest } from '../../guest/guest.ts';

/** Who a command runs as decides these, not the image. */
const OF_THE_USER = new Set(['HOME', 'USER', 'LOGNAME', 'HOSTNAME', 'TERM']);

/** What an image sets for its programs, such as the PATH to its compiler. */
export function imageEnvOf(lines: string[]): Record<string, string> {
  const pairs = lines.map(
    (line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)] as const,
  );
  return Object.fromEntries(pairs.filter(([name]) => name !== '' && !OF_THE_USER.has(name)));
}

/** The guest, with the image's environment below that of each command. */
export function guestWithEnv(guest: Guest, env: Record<string, string>): Guest {
  return {
    ...guest,
    exec: (request, options) => guest.exec({ ...request, env: { ...env, ...request.env } }, options),
  };
}
