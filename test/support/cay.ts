/** The command line as users have it: `./cay` as a process, with a data directory and a server of its own. */
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';

const LAUNCHER = join(import.meta.dirname, '../../cay');

export interface Ran {
  code: number | null;
  stdout: string;
  stderr: string;
}

interface CayOptions {
  input?: string | Buffer;
  env?: Record<string, string>;
}

export interface Cay extends AsyncDisposable {
  readonly dataDir: string;
  readonly env: NodeJS.ProcessEnv;
  /** Runs to the end. */
  run(...args: (string | CayOptions)[]): Promise<Ran>;
  /** The same, and its output as JSON. Rejects if it fails. */
  json<T>(...args: string[]): Promise<T>;
  /** Starts and leaves running. */
  start(...args: string[]): ChildProcess;
  /** The same, with its standard input open. */
  spawn(args: string[], stdin: 'pipe'): ChildProcess;
}

export const LAUNCHER_PATH = LAUNCHER;

export async function openCay(env: Record<string, string> = {}): Promise<Cay> {
  const dataDir = await mkdtemp('/tmp/cay-e2e-');
  const { CAY_URL: _, CAY_API_KEY: __, ...rest } = process.env;
  const all = { ...rest, CAY_DATA: dataDir, CAY_LISTEN: '127.0.0.1:0', CAY_POOL: '0', NO_COLOR: '1', ...env };
  const start = (args: string[], more: Record<string, string> = {}, stdin: 'pipe' | 'ignore' = 'ignore') =>
    spawn(LAUNCHER, args, { env: { ...all, ...more }, stdio: [stdin, 'pipe', 'pipe'] });
  const cay: Cay = {
    dataDir,
    env: all,
    start: (...args) => start(args),
    spawn: (args, stdin) => start(args, {}, stdin),
    async run(...parts) {
      const options = parts.find((part) => typeof part !== 'string') ?? {};
      const child = start(
        parts.filter((part) => typeof part === 'string'),
        options.env,
        options.input === undefined ? 'ignore' : 'pipe',
      );
      child.stdin?.on('error', () => {}).end(options.input);
      return ended(child);
    },
    async json<T>(...args: string[]) {
      const { code, stdout, stderr } = await cay.run(...args, '--json');
      if (code !== 0) throw new Error(`cay ${args.join(' ')} failed with ${code}: ${stderr}`);
      return JSON.parse(stdout) as T;
    },
    async [Symbol.asyncDispose]() {
      const { code, stderr } = await cay.run('down', '--destroy', '--force', '--yes');
      if (code !== 0) throw new Error(`"cay down --destroy" failed: ${stderr}`);
      await rm(dataDir, { recursive: true, force: true });
    },
  };
  return cay;
}

export async function ended(child: ChildProcess): Promise<Ran> {
  const output = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  for (const name of ['stdout', 'stderr'] as const)
    child[name]!.on('data', (chunk: Buffer) => output[name].push(chunk));
  const code = await new Promise<number | null>((resolve, reject) =>
    child.on('close', resolve).on('error', reject),
  );
  return {
    code,
    stdout: Buffer.concat(output.stdout).toString(),
    stderr: Buffer.concat(output.stderr).toString(),
  };
}

/** Resolves when the child has printed it. */
export function printed(child: ChildProcess, wanted: string | RegExp): Promise<string> {
  return new Promise((resolve, reject) => {
    let text = '';
    child.stdout!.on('data', (chunk: Buffer) => {
      text += chunk.toString();
      if (typeof wanted === 'string' ? text.includes(wanted) : wanted.test(text)) resolve(text);
    });
    child.on('exit', (code) =>
      reject(new Error(`It ended with ${code} and had printed only ${JSON.stringify(text)}`)),
    );
  });
}
