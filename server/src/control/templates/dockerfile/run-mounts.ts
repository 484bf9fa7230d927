/**
 * `RUN --mount`: files that are there for one command. A sandbox mounts nothing while it runs, so they are
 * put in place before the command, and what was there before is put back after it. Nothing of them is in the
 * snapshot.
 */
import { posix } from 'node:path';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { Files, Guest } from '../../../guest/guest.ts';
import { makeDirectories, placeSources, type Source } from '../builds/copy-files.ts';
import { randomName } from '../../../lib/random-name.ts';
import { dockerfileError, type Instruction } from './dockerfile.ts';

export type Mount =
  | {
      type: 'secret';
      id: string;
      target?: string;
      env?: string;
      required: boolean;
      mode: number;
      uid: number;
      gid: number;
    }
  | { type: 'cache' | 'tmpfs'; target: string; mode: number; uid: number; gid: number }
  | { type: 'bind'; target: string; source: string; from?: string };

const KEYS: Record<Mount['type'], readonly string[]> = {
  secret: ['type', 'id', 'target', 'dst', 'destination', 'env', 'required', 'mode', 'uid', 'gid'],
  cache: [
    'type',
    'id',
    'target',
    'dst',
    'destination',
    'sharing',
    'from',
    'source',
    'mode',
    'uid',
    'gid',
    'ro',
    'readonly',
  ],
  tmpfs: ['type', 'target', 'dst', 'destination', 'size'],
  bind: [
    'type',
    'target',
    'dst',
    'destination',
    'source',
    'src',
    'from',
    'rw',
    'readwrite',
    'ro',
    'readonly',
  ],
};

/** `text` is the value of the flag, with variables expanded. */
export function parseMount(text: string, { line }: Instruction): Mount {
  const values = new Map<string, string>();
  for (const part of text.split(',')) {
    const [key = '', ...rest] = part.split('=');
    values.set(key.trim().toLowerCase(), rest.join('='));
  }
  const type = values.get('type') ?? 'bind';
  if (!(type in KEYS))
    throw dockerfileError(
      line,
      `--mount=type=${type.slice(0, 40)} is not known here`,
      `there are ${Object.keys(KEYS).join(', ')}`,
    );
  const kind = type as Mount['type'];
  for (const key of values.keys())
    if (!KEYS[kind].includes(key))
      throw dockerfileError(line, `a mount of type ${kind} has no "${key.slice(0, 40)}"`);
  const target = values.get('target') ?? values.get('dst') ?? values.get('destination');
  const number = (key: string, usual: number, radix = 10) => {
    const given = values.get(key);
    if (given === undefined) return usual;
    const parsed = Number.parseInt(given, radix);
    if (!(parsed >= 0 && parsed < 65_536))
      throw dockerfileError(line, `"${key}=${given.slice(0, 20)}" is no number`);
    return parsed;
  };
  const rights = { uid: number('uid', 0), gid: number('gid', 0) };
  if (kind === 'secret') {
    const env = values.get('env');
    const id = values.get('id') ?? (target === undefined ? env : posix.basename(target));
    if (!id) throw dockerfileError(line, 'a mount of type secret needs an id');
    const required = /^(?:true|1|)$/.test(values.get('required') ?? 'false');
    return {
      type: 'secret',
      id,
      required,
      mode: number('mode', 0o400, 8),
      ...rights,
      ...(env !== undefined && { env }),
      ...(target !== undefined ? { target } : env === undefined ? { target: `/run/secrets/${id}` } : {}),
    };
  }
  if (target === undefined || target === '')
    throw dockerfileError(line, `a mount of type ${kind} needs a target`);
  if (kind === 'bind') {
    const from = values.get('from');
    return {
      type: 'bind',
      target,
      source: values.get('source') ?? values.get('src') ?? '/',
      ...(from !== undefined && { from }),
    };
  }
  return { type: kind, target, mode: number('mode', 0o755, 8), ...rights };
}

export interface Mounting {
  guest: Guest;
  signal: AbortSignal;
  secrets: Readonly<Record<string, string>>;
  /** What a bind mount shows. */
  sources(mount: Extract<Mount, { type: 'bind' }>): Promise<Source[]>;
  resolve(path: string): string;
}

/** Puts mounts in place for a command, and takes them away. Resolves what it resolves. */
export async function withMounts<T>(
  mounts: readonly Mount[],
  mounting: Mounting,
  work: (env: Record<string, string>) => Promise<T>,
): Promise<T> {
  const { guest, signal, secrets, resolve } = mounting;
  const files = guest.files('root');
  const env: Record<string, string> = {};
  const undo: (() => Promise<void>)[] = [];
  try {
    for (const mount of mounts) {
      if (mount.type === 'secret') {
        const value = secrets[mount.id];
        if (value === undefined) {
          if (!mount.required) continue;
          throw new CayError('invalid_argument', `The secret "${mount.id.slice(0, 60)}" was not given`, {
            hint: `pass --secret id=${mount.id.slice(0, 60)},src=FILE`,
          });
        }
        if (mount.env !== undefined) env[mount.env] = value;
        if (mount.target === undefined) continue;
        const target = resolve(mount.target);
        undo.push(await hide(files, target, signal));
        await files.write(target, Buffer.from(value), { mode: mount.mode, signal });
        await files.chown(target, `${mount.uid}:${mount.gid}`, { signal });
        continue;
      }
      const target = resolve(mount.target);
      undo.push(await hide(files, target, signal));
      if (mount.type === 'bind') {
        const sources = await mounting.sources(mount);
        await placeSources(sources, { guest, target, signal });
      } else {
        await files.mkdir(target, { mode: mount.mode, signal });
        await files.chown(target, `${mount.uid}:${mount.gid}`, { signal });
      }
    }
    return await work(env);
  } finally {
    for (const each of undo.reverse()) await each();
  }
}

/** Moves away what is at a path, and makes the directory above it. The result removes what is there then. */
async function hide(files: Files, path: string, signal: AbortSignal): Promise<() => Promise<void>> {
  const missing = (error: unknown) => {
    if (!isCayError(error, 'not_found')) throw error;
    return undefined;
  };
  const made: string[] = [];
  for (let at = posix.dirname(path); at !== '/' && !(await files.stat(at, { signal }).catch(missing));)
    at = posix.dirname(made[made.push(at) - 1]!);
  await makeDirectories(files, posix.dirname(path), undefined, signal);
  const aside = posix.join(posix.dirname(path), `.cay-aside-${randomName(12)}`);
  const there = await files.stat(path, { follow: false, signal }).catch(missing);
  if (there) await files.move(path, aside, { signal });
  return async () => {
    // Without the signal: a command that was cancelled must not leave a secret behind.
    await files.remove(path, { recursive: true }).catch(missing);
    if (there) await files.move(aside, path);
    for (const directory of made)
      await files.remove(directory).catch((error: unknown) => {
        // The command has put something beside it.
        if (!isCayError(error, 'failed_precondition')) missing(error);
      });
  };
}
