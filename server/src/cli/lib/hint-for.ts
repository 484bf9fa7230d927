import type { CayError } from '@cay/sdk/client';

/** What lists the things that a verb names. */
const LISTS: Record<string, string> = {
  attach: 'cay ps --all SANDBOX',
  bucket: 'cay bucket ls',
  image: 'cay image ls',
  key: 'cay project ls',
  kill: 'cay ps SANDBOX',
  logs: 'cay ps --all SANDBOX',
  project: 'cay project ls',
  quota: 'cay project ls',
  secret: 'cay secret ls',
  snapshot: 'cay snapshot ls',
  template: 'cay template ls',
  volume: 'cay volume ls',
  wait: 'cay ps --all SANDBOX',
  webhook: 'cay webhook ls',
};

/** What to do about a failure that has no hint of its own. `verb` is such as `volume create`. */
export function hintFor({ code, details }: CayError, verb: string): string {
  const help = `"cay ${verb === '' ? '' : `${verb} `}--help" shows what can be given`;
  const inside = typeof details['errno'] === 'string';
  switch (code) {
    case 'not_found': {
      const list = LISTS[verb.split(' ')[0]!];
      if (details['what'] === 'command')
        return 'install it in the sandbox, or name its path; --user root takes the place of sudo';
      if (inside) return 'check the path';
      return list === undefined ? help : `"${list}" lists those that exist`;
    }
    case 'permission_denied':
      return inside
        ? 'check who owns it, and as whom you act: --user root is root inside a sandbox, sudo here'
        : 'use a key that may: "cay key ls" shows roles and projects of keys, CAY_API_KEY chooses one';
    case 'conflict':
    case 'unavailable':
    case 'cancelled':
      return 'try again; "cay status" shows whether the server is well';
    case 'deadline_exceeded':
      return 'try again, or give it more time';
    case 'resource_exhausted':
      return inside
        ? 'remove what is not needed'
        : '"cay status" shows what is full, "cay quota show" what the project may use';
    case 'already_exists':
      return 'choose another name, or remove the one that exists';
    case 'failed_precondition':
      return inside ? 'check the path' : '"cay inspect SANDBOX" shows the state, "cay status" the server';
    case 'unsupported':
      return '"cay doctor" shows what works on this machine';
    case 'internal':
      return 'this is a fault of Cay; server.log in the data directory, or the journal of a service, has more';
    default:
      return help;
  }
}
