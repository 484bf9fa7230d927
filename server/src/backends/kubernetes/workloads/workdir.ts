/**
 * Which directory of a pod can be the working directory of commands. One that the image does not have becomes
 * a writable volume.
 */
import { posix } from 'node:path';
import { CayError } from '@cay/sdk/protocol';
import { RESERVED } from './pod-mounts.ts';

const MAX_BYTES = 1024;
const MAX_NAME_BYTES = 255;
// The cluster takes no ":" in such a path.
const REFUSED = /[:\p{Cc}]/u;

/** Refuses what could hide a part of the pod, or what no node could mount. */
export function checkWorkdir(workdir: string): void {
  const shown = JSON.stringify(workdir.length > 64 ? `${workdir.slice(0, 64)}…` : workdir);
  const refuse = (why: string) =>
    new CayError('invalid_argument', `A pod cannot have the working directory ${shown}: ${why}`, {
      details: { path: ['workdir'] },
      hint: 'choose one below /home/user, or one of your own such as /work',
    });
  if (REFUSED.test(workdir)) throw refuse('it must have no ":" and no control characters');
  const bytes = Buffer.byteLength(workdir);
  if (bytes > MAX_BYTES) throw refuse(`it has ${bytes} bytes, and may have ${MAX_BYTES}`);
  if (workdir.split('/').some((name) => Buffer.byteLength(name) > MAX_NAME_BYTES))
    throw refuse(`a name in it has more than ${MAX_NAME_BYTES} bytes`);
  if (posix.resolve(workdir) !== workdir.replace(/(.)\/$/, '$1'))
    throw refuse(`it must be written as ${JSON.stringify(posix.resolve(workdir).slice(0, 64))}`);
  const taken = RESERVED.find((directory) => workdir === directory || workdir.startsWith(`${directory}/`));
  if (taken !== undefined) throw refuse(`"${taken}" is not the sandbox's to have`);
}
