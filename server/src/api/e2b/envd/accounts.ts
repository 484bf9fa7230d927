/**
 * Users and groups of a sandbox, from its own `/etc`. The sandbox controls these files, so they are shown and
 * never trusted.
 */
import { isCayError } from '@cay/sdk/protocol';
import type { EnteredSandbox } from '../../../control/control.ts';
import { collectBytes } from '../../../lib/bounded-bytes.ts';
import type { Guest } from '../../../guest/guest.ts';

export interface Account {
  name: string;
  uid: number;
  gid: number;
  home: string;
}

export interface Accounts {
  byName(name: string): Account | undefined;
  userName(uid: number): string;
  groupName(gid: number): string;
}

export type ReadAccounts = (guest: Guest, row: EnteredSandbox) => Promise<Accounts>;

const KEEP_MS = 2000;
const KEEP = 100;
/** Of each file. Whoever is behind them has a number and no name. */
const MOST_LINES = 4096;
const MAX_BYTES = 256 * 1024;
/** How long the guest may take to read them. */
const READ_MS = 10_000;

/** Reads the files at most every two seconds, because users may change. */
export function accountReader(now: () => number = Date.now): ReadAccounts {
  const kept = new Map<string, { untilMs: number; accounts: Promise<Accounts> }>();
  return (guest, row) => {
    const key = `${row.id}:${row.incarnation}`;
    const known = kept.get(key);
    if (known && known.untilMs > now()) return known.accounts;
    kept.delete(key);
    // The oldest come first.
    for (const [old, { untilMs }] of kept) {
      if (untilMs > now() && kept.size < KEEP) break;
      kept.delete(old);
    }
    const accounts = read(guest);
    kept.set(key, { untilMs: now() + KEEP_MS, accounts });
    accounts.catch(() => kept.delete(key));
    return accounts;
  };
}

async function read(guest: Guest): Promise<Accounts> {
  const [passwd, group] = await Promise.all([text(guest, '/etc/passwd'), text(guest, '/etc/group')]);
  const byName = new Map<string, Account>([['root', { name: 'root', uid: 0, gid: 0, home: '/root' }]]);
  const users = new Map<number, string>();
  for (const [name = '', , uid, gid, , home = '/'] of fields(passwd)) {
    const account = { name, uid: Number(uid), gid: Number(gid), home: home.startsWith('/') ? home : '/' };
    if (!isId(account.uid) || !isId(account.gid)) continue;
    byName.set(name, account);
    if (!users.has(account.uid)) users.set(account.uid, name);
  }
  const groups = new Map<number, string>();
  for (const [name = '', , gid] of fields(group)) if (!groups.has(Number(gid))) groups.set(Number(gid), name);
  return {
    byName: (name) => byName.get(name),
    userName: (uid) => users.get(uid) ?? String(uid),
    groupName: (gid) => groups.get(gid) ?? String(gid),
  };
}

const isId = (value: number) => Number.isInteger(value) && value >= 0 && value < 2 ** 32;

function fields(file: string): string[][] {
  return file
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('#'))
    .slice(0, MOST_LINES)
    .map((line) => line.split(':'));
}

async function text(guest: Guest, path: string): Promise<string> {
  try {
    const { data } = await guest
      .files('root')
      .read(path, { length: MAX_BYTES, signal: AbortSignal.timeout(READ_MS) });
    return ((await collectBytes(data, MAX_BYTES)) ?? '').toString();
  } catch (error) {
    // Some images have no such file.
    if (isCayError(error, 'not_found')) return '';
    throw error;
  }
}
