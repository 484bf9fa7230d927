/** Finds variables that look like settings and are none, which is how a typing error in one looks. */
import { nearest } from '../lib/nearest.ts';
import { SETTINGS } from '../settings.ts';
import type { Environment } from './resolve-settings.ts';

const PREFIX = 'CAY_';
/** Those that are not settings of the server, and are read elsewhere. */
const OTHERS = [
  'CAY_URL',
  'CAY_API_KEY',
  'CAY_DEBUG',
  'CAY_KUBERNETES_BACKEND',
  'CAY_FAULT_POINTS',
  'CAY_BOOT_ID_FILE',
];
/** What Kubernetes tells pods about Services whose names begin with "cay". */
const OF_SERVICES = /_SERVICE_(?:HOST|PORT)(?:_|$)|_PORT_\d+_(?:TCP|UDP|SCTP)(?:_|$)/;

/** One sentence for each. */
export function unknownVariables(env: Environment): string[] {
  const known = [...SETTINGS.flatMap((setting) => setting.env ?? []), ...OTHERS];
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name) && !isOfService(name, env[name] ?? ''))
    .sort()
    .map((name) => {
      const meant = nearest(
        name.slice(PREFIX.length),
        known.filter((each) => each.startsWith(PREFIX)).map((each) => each.slice(PREFIX.length)),
      );
      const question = meant === undefined ? '' : `; did you mean ${PREFIX}${meant}?`;
      return `${name} is not a setting and is ignored${question}`;
    });
}

function isOfService(name: string, value: string): boolean {
  return OF_SERVICES.test(name) || (name.endsWith('_PORT') && /^(?:tcp|udp|sctp):\/\//.test(value));
}
