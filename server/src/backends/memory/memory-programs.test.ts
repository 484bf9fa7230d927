import { newId, SandboxSpecSchema, type SandboxSpecInput } from '@cay/sdk/protocol';
import { describe, expect, it } from 'vitest';
import { memoryBackend, type MemoryOptions } from './memory.ts';

const MiB = 1024 * 1024;

async function sandbox(options: MemoryOptions, spec: SandboxSpecInput = {}) {
  const backend = memoryBackend(options);
  const id = newId('sbx');
  await backend.ensure(id, SandboxSpecSchema.parse(spec));
  const guest = await backend.connect(id);
  const run = async (...argv: string[]) => {
    const handle = await guest.exec({ id: newId('cmd'), argv, env: {}, workdir: '/home/user', user: 'user' });
    let output = '';
    for await (const chunk of handle.output)
      if (chunk.channel !== 'gap') output += Buffer.from(chunk.data).toString();
    return { output, end: await handle.ended };
  };
  return { backend, id, guest, run };
}

describe('a program of the memory backend', () => {
  it('is called with what a process has', async () => {
    const { run } = await sandbox({
      commands: {
        greet: async ({ argv, env, workdir, user, stdout }) => {
          await stdout.write(`${argv.join(' ')} as ${user.name} in ${workdir}, home ${env['HOME']}`);
          return 3;
        },
      },
    });
    expect(await run('greet', 'you')).toEqual({
      output: 'greet you as user in /home/user, home /home/user',
      end: { kind: 'exited', exitCode: 3 },
    });
    expect((await run('sh', '-c', 'greet shell | cat')).output).toContain('greet shell');
  });

  it('takes the place of a built-in one', async () => {
    const { run } = await sandbox({ commands: { pwd: () => 9 } });
    expect((await run('pwd')).end).toEqual({ kind: 'exited', exitCode: 9 });
  });

  it('that throws prints why, and exits with 1', async () => {
    const { run } = await sandbox({
      commands: {
        broken: () => {
          throw new Error('it broke');
        },
      },
    });
    expect(await run('broken')).toEqual({
      output: 'broken: it broke\n',
      end: { kind: 'exited', exitCode: 1 },
    });
  });

  it('keeps its output in order without waiting for it', async () => {
    const { run } = await sandbox({
      commands: {
        hasty: ({ stdout, stderr }) => {
          for (let line = 0; line < 100; line++) void (line % 2 ? stderr : stdout).write(`${line} `);
          return 0;
        },
      },
    });
    expect((await run('hasty')).output).toBe(Array.from({ length: 100 }, (_, line) => `${line} `).join(''));
  });

  it('is told by its signal that it was killed', async () => {
    let told = false;
    const { guest } = await sandbox({
      commands: {
        stubborn: ({ signal }) => new Promise(() => signal.addEventListener('abort', () => (told = true))),
      },
    });
    const handle = await guest.exec({ id: 'x', argv: ['stubborn'], env: {}, workdir: '/', user: 'user' });
    await guest.signal('x', 'SIGTERM');
    expect(await handle.ended).toEqual({ kind: 'signalled', signal: 'SIGTERM' });
    expect(told).toBe(true);
  });

  it('that allocates beyond the limit is oom_killed, and the sandbox goes on', async () => {
    const hog = { hog: async ({ allocate }: { allocate(bytes: number): void }) => (allocate(100 * MiB), 0) };
    const { backend, id, run } = await sandbox({ commands: hog }, { limits: { memoryBytes: 64 * MiB } });
    expect((await run('hog')).end).toEqual({ kind: 'oom_killed' });
    expect(await backend.stats(id)).toMatchObject({ oomKills: 1, memoryBytes: 0 });
    await backend.resize(id, { memoryBytes: 128 * MiB });
    expect((await run('hog')).end).toEqual({ kind: 'exited', exitCode: 0 });
  });

  it('uses the CPU time that it says it does', async () => {
    const { backend, id, run } = await sandbox({
      commands: { work: async ({ compute }) => (await compute(25), 0) },
    });
    await run('work');
    expect((await backend.stats(id)).cpuUsageMs).toBeCloseTo(25);
  });

  it('beyond the limit of processes is refused', async () => {
    const { guest, run } = await sandbox({}, { limits: { pids: 8 } });
    for (let at = 0; at < 8; at++)
      await guest.exec({ id: `s${at}`, argv: ['sleep', '60'], env: {}, workdir: '/', user: 'user' });
    await expect(run('true')).rejects.toMatchObject({ code: 'resource_exhausted' });
    await guest.signal('s0', 'SIGKILL');
    await new Promise(setImmediate);
    expect((await run('true')).end).toEqual({ kind: 'exited', exitCode: 0 });
  });

  it('finds the files that every sandbox starts with', async () => {
    const { run } = await sandbox({ files: { '/data/greeting': 'hello' } });
    expect((await run('cat', '/data/greeting')).output).toBe('hello');
  });
});
