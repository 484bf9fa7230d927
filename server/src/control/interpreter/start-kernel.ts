import { setTimeout as sleep } from 'node:timers/promises';
import { CayError, isCayError } from '@cay/sdk/protocol';
import type { CallOptions, Guest } from '../../guest/guest.ts';
import { collectBytes } from '../../lib/bounded-bytes.ts';
import type { EnteredSandbox } from '../sandboxes/sandbox.ts';
import { INTERPRETER_PORT } from './interpreter.ts';
import { kernelCommand, kernelFiles } from './kernel-files.ts';

/** Where a template has the kernel. */
export const KERNEL_DIRECTORY = '/var/lib/code-interpreter';
/** Where it goes in a sandbox whose user may not make the other. */
const FALLBACK = '/tmp/.code-interpreter';
const READY_MS = 30_000;
const POLL_MS = 15;

/** Whether something listens on the kernel's port. */
export async function kernelAnswers(guest: Guest, options: CallOptions = {}): Promise<boolean> {
  try {
    await (await guest.ports.connect(INTERPRETER_PORT, options))[Symbol.asyncDispose]();
    return true;
  } catch (error) {
    if (isCayError(error, 'unavailable')) return false;
    throw error;
  }
}

/**
 * Puts the kernel into a sandbox and starts it. The id of its command is the same for everybody, so several
 * callers, and several servers, start one. Rejects `failed_precondition` if it cannot run there.
 */
export async function startKernel(
  guest: Guest,
  row: EnteredSandbox,
  options: CallOptions = {},
): Promise<void> {
  const directory = await putFiles(guest, row);
  const { digest } = kernelFiles();
  const { env, workdir, user } = row.spec;
  const id = `interpreter.${digest.slice(0, 16)}`;
  const begin = async () =>
    guest.exec(
      { id, argv: kernelCommand(directory), env, workdir, user, overflow: 'drop', stdin: false },
      options,
    );
  let handle = await begin().catch(explained);
  try {
    const late = performance.now() + READY_MS;
    for (;;) {
      if (await kernelAnswers(guest, options)) return;
      if (performance.now() > late)
        throw new CayError('failed_precondition', 'The code interpreter did not start in time');
      const [info] = (await guest.commands(options)).filter((command) => command.id === id);
      if (info?.end !== undefined || !info) {
        // It has died: the one found now, or an earlier one whose id is still known.
        const output = await outputOf(handle);
        await handle[Symbol.asyncDispose]();
        if (!handle.existing) throw cannotStart(output);
        await guest.forget(id, options);
        handle = await begin().catch(explained);
      }
      await sleep(POLL_MS, undefined, options.signal && { signal: options.signal });
    }
  } finally {
    await handle[Symbol.asyncDispose]();
  }
}

/** Resolves to the directory that has the files. Files of another version are replaced. */
async function putFiles(guest: Guest, row: EnteredSandbox): Promise<string> {
  const { files, digest } = kernelFiles();
  for (const directory of [KERNEL_DIRECTORY, FALLBACK]) {
    if ((await read(guest, `${directory}/digest`)) === digest) return directory;
    const user = guest.files(row.spec.user);
    try {
      for (const { name, content } of files)
        await user.write(`${directory}/${name}`, content, { mode: 0o644, reach: true });
      // Last: a reader that finds the digest finds all files.
      await user.write(`${directory}/digest`, Buffer.from(digest), { mode: 0o644, reach: true });
      return directory;
    } catch (error) {
      if (directory === FALLBACK || !isCayError(error, 'permission_denied')) throw error;
    }
  }
  throw new CayError('failed_precondition', 'The code interpreter has no place in this sandbox');
}

async function read(guest: Guest, path: string): Promise<string | undefined> {
  try {
    const { data } = await guest.files('root').read(path, { length: 100 });
    return (await collectBytes(data, 100))?.toString();
  } catch (error) {
    if (isCayError(error, 'not_found') || isCayError(error, 'permission_denied')) return undefined;
    throw error;
  }
}

async function outputOf(handle: Awaited<ReturnType<Guest['exec']>>): Promise<string> {
  let text = '';
  for await (const chunk of handle.output) {
    if (chunk.channel !== 'gap') text += Buffer.from(chunk.data).toString();
    if (text.length > 2000) break;
  }
  return text.trim().slice(-500);
}

function cannotStart(output: string): CayError {
  return new CayError(
    'failed_precondition',
    `The code interpreter ended at its start${output && `: ${output}`}`,
    { hint: 'it needs Python 3 in the template' },
  );
}

function explained(error: unknown): never {
  if (!isCayError(error, 'not_found') || error.details['what'] !== 'command') throw error;
  throw new CayError('failed_precondition', 'The code interpreter cannot run in this sandbox', {
    hint: 'it needs Python 3 in the template',
    cause: error,
  });
}
