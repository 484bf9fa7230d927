import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { installParts } from './parts.ts';

const run = promisify(execFile);

/** containerd's own client, on the containers of the pods of the cluster in a directory. */
export async function ctrOf(directory: string): Promise<(...args: string[]) => Promise<string>> {
  const program = `${(await installParts(['containerd'])).directory('containerd')}/usr/bin/ctr`;
  return async (...args) =>
    (await run(program, ['-a', `${directory}/containerd.sock`, '-n', 'k8s.io', ...args])).stdout;
}
