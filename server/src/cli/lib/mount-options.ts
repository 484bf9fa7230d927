/** Mounts as they are written: `data:/data:ro,subpath=x`, `/srv/set:/set` and `/scratch:size=64m`. */
import type { CreateSandboxInput } from '@cay/sdk/client';
import { UnitError, parseSize } from '../../lib/units.ts';
import { usageError } from './failure.ts';

type Mount = NonNullable<CreateSandboxInput['mounts']>[number];

const VOLUME =
  'write NAME:/path, NAME:/path:ro or NAME:/path,subpath=DIR; /host/dir:/path mounts a directory of the host';
const TMPFS = 'write /path, or /path:size=64m,mode=1777,noexec';

/**
 * A source that begins with a slash is a directory of the host, which is read-only unless `:rw` says more.
 */
export function parseVolume(text: string): Mount {
  const refuse = () => usageError(`"${text}" is no mount for --volume`, VOLUME);
  const [head = '', ...options] = text.split(',');
  const [source = '', path, access, ...rest] = head.split(':');
  if (source === '' || path === undefined || rest.length > 0) throw refuse();
  if (access !== undefined && access !== 'ro' && access !== 'rw') throw refuse();
  if (source.startsWith('/')) {
    if (options.length > 0) throw refuse();
    return { type: 'host', source, path, readOnly: access !== 'rw' };
  }
  let subpath: string | undefined;
  for (const option of options) {
    const [name, value] = option.split('=');
    if (name !== 'subpath' || !value) throw refuse();
    subpath = value;
  }
  const readOnly = access === 'ro';
  return { type: 'volume', volume: source, path, ...(readOnly && { readOnly }), ...(subpath && { subpath }) };
}

export function parseTmpfs(text: string): Mount {
  const [path = '', rest, ...more] = text.split(':');
  const refuse = (why: string) => usageError(`"${text}" is no mount for --tmpfs: ${why}`, TMPFS);
  if (path === '' || more.length > 0) throw refuse('it has no path');
  const mount: Mount = { type: 'tmpfs', path };
  for (const option of rest === undefined ? [] : rest.split(',')) {
    const [name, value] = option.split('=');
    if (name === 'noexec' && value === undefined) mount.noexec = true;
    else if (name === 'mode' && value) mount.mode = value;
    else if (name === 'size' && value) mount.sizeBytes = sizeOf(value, refuse);
    else throw refuse(`"${option}" is unknown`);
  }
  return mount;
}

function sizeOf(text: string, refuse: (why: string) => Error): number {
  try {
    return parseSize(text);
  } catch (error) {
    if (error instanceof UnitError) throw refuse(error.message);
    throw error;
  }
}
