import { spawn } from 'node:child_process';
import type { Launch, LaunchEnd, Launched } from './launcher.ts';

/** Starts a program from this process, where there is no launcher. */
export function launchDirectly({ argv, cwd, env, keepBytes, stdin, silent }: Launch): Launched {
  const { promise, resolve } = Promise.withResolvers<LaunchEnd>();
  const [file, ...args] = argv as [string, ...string[]];
  const pipe = silent ? 'ignore' : 'pipe';
  const child = spawn(file, args, {
    cwd,
    env,
    stdio: [stdin === undefined ? 'ignore' : 'pipe', pipe, pipe],
  });
  const stdout = boundedBytes(keepBytes);
  const stderr = boundedBytes(keepBytes);
  child.stdout?.on('data', stdout.add);
  child.stderr?.on('data', stderr.add);
  // Not reading all input is no failure by itself; the exit code decides.
  child.stdin?.on('error', () => {});
  child.stdin?.end(stdin);
  child.on('error', (error: NodeJS.ErrnoException) => {
    if (child.pid === undefined) resolve({ kind: 'notStarted', errno: error.code ?? error.message });
  });
  child.on('close', (code, signal) => {
    const output = { stdout: stdout.bytes(), stderr: stderr.bytes() };
    if (signal) resolve({ kind: 'signalled', signal, ...output });
    else resolve({ kind: 'exited', code: code ?? 0, ...output });
  });
  return {
    ended: promise,
    kill() {
      child.kill('SIGKILL');
      // A grandchild may hold the pipes open; the caller must not wait for it.
      child.stdout?.destroy();
      child.stderr?.destroy();
    },
  };
}

function boundedBytes(limit: number) {
  const chunks: Buffer[] = [];
  let room = limit;
  return {
    add: (chunk: Buffer) => {
      if (room <= 0) return;
      chunks.push(chunk.subarray(0, room));
      room -= chunk.length;
    },
    bytes: () => Buffer.concat(chunks),
  };
}
