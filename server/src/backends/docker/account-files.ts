import { CayError } from '@cay/sdk/protocol';
import type { DockerClient } from './docker-client.ts';

/**
 * The engine opens these files of a container itself whenever it starts the container or a program in it. If
 * one of them is a named pipe the engine waits for ever, and answers nothing about that container meanwhile.
 */
const FILES = ['/etc/passwd', '/etc/group'];
/** As Go counts the bits of a mode. */
const SYMLINK = 1 << 27;
const NAMED_PIPE = 1 << 25;

/** Rejects `failed_precondition` if the engine would hang on a file of the container. */
export async function requireAccountFiles(
  client: DockerClient,
  container: string,
  call: { action: string; signal?: AbortSignal | undefined },
): Promise<void> {
  await Promise.all(FILES.map((file) => requireNoPipe(file)));

  async function requireNoPipe(file: string): Promise<void> {
    const found = await stat(file);
    // The engine has followed all links on the way to the target.
    const last = found && found.mode & SYMLINK ? await stat(found.linkTarget) : found;
    if (!last || !(last.mode & NAMED_PIPE)) return;
    throw new CayError('failed_precondition', `Cannot ${call.action}: its "${file}" is a named pipe`, {
      hint: 'Docker cannot start what has no readable accounts; destroy it, or use another image',
    });
  }

  async function stat(path: string): Promise<{ mode: number; linkTarget: string } | undefined> {
    const text = await client.header(`/containers/${container}/archive`, 'x-docker-container-path-stat', {
      action: call.action,
      query: { path },
      ...(call.signal && { signal: call.signal }),
    });
    if (text === undefined) return undefined;
    return JSON.parse(Buffer.from(text, 'base64').toString()) as { mode: number; linkTarget: string };
  }
}
