/**
 * Before a runtime starts a container it looks up its user in the tree's `/etc/passwd` and `/etc/group`. The
 * tenant could put a fifo there, and the runtime would block on it until its timeout, in one of the few slots
 * for starting containers.
 */
import { lstatSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { CayError } from '@cay/sdk/protocol';

const ACCOUNTS = ['etc/passwd', 'etc/group'];
const MAX_LINKS = 40;

/** Throws `failed_precondition`. No process runs in the tree yet, so the check cannot race. */
export function requireReadableAccounts(rootDir: string): void {
  for (const path of ACCOUNTS) {
    const kind = kindInside(rootDir, path);
    if (kind === 'file' || kind === 'absent') continue;
    throw new CayError(
      'failed_precondition',
      `Cannot start the sandbox: its /${path} is a ${kind}, not a file`,
      {
        hint: 'roll the sandbox back to a snapshot in which it is a file',
      },
    );
  }
}

/** The target of a path if every symlink is resolved inside the root. */
function kindInside(rootDir: string, path: string): string {
  const ahead = path.split('/');
  let at: string[] = [];
  for (let links = 0; ahead.length > 0;) {
    const name = ahead.shift()!;
    if (name === '' || name === '.') continue;
    if (name === '..') {
      at.pop();
      continue;
    }
    const here = join(rootDir, ...at, name);
    const stat = lstatSync(here, { throwIfNoEntry: false });
    if (!stat) return 'absent';
    if (stat.isSymbolicLink()) {
      if (++links > MAX_LINKS) return 'absent';
      const target = readlinkSync(here);
      if (target.startsWith('/')) at = [];
      ahead.unshift(...target.split('/'));
    } else if (stat.isDirectory()) at.push(name);
    else if (ahead.length > 0) return 'absent';
    else if (stat.isFIFO()) return 'fifo';
    else return stat.isFile() ? 'file' : 'device';
  }
  return 'directory';
}
