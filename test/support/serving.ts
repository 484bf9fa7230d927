/** `cay up` in the foreground, as a process that a test may kill. */
import { spawn, type ChildProcess } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';

const MAIN = join(import.meta.dirname, '../../server/src/main.ts');
const START_MS = 60_000;

export interface Serving {
  child: ChildProcess;
  url: string;
  key: string;
}

/** Resolves when it answers. */
export async function startServing(env: NodeJS.ProcessEnv): Promise<Serving> {
  const child = spawn(process.execPath, [MAIN, 'up', '--log-level', 'info'], {
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let words = '';
  child.stderr.on('data', (chunk: Buffer) => (words += chunk.toString()));
  child.stdout.on('data', (chunk: Buffer) => (words += chunk.toString()));
  for (const deadline = Date.now() + START_MS; Date.now() < deadline;) {
    const file = await readFile(join(env['CAY_DATA']!, 'server.json'), 'utf8').catch(() => undefined);
    const server = file === undefined ? undefined : (JSON.parse(file) as { pid: number; url: string });
    if (server?.pid === child.pid) {
      const { key } = JSON.parse(await readFile(join(env['CAY_DATA']!, 'cli.json'), 'utf8')) as {
        key: string;
      };
      return { child, url: server!.url, key };
    }
    if (child.exitCode !== null) break;
    await sleep(20);
  }
  child.kill('SIGKILL');
  throw new Error(`The server did not start: ${words}`);
}

/** Resolves when it is gone. */
export async function killServing(
  { child }: Pick<Serving, 'child'>,
  signal: NodeJS.Signals = 'SIGKILL',
): Promise<void> {
  const gone = new Promise((resolve) => child.once('exit', resolve));
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill(signal);
  await gone;
}
