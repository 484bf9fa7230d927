import { expect, it } from 'vitest';
import { RunError, run } from '../../server/src/lib/run.ts';

/** What `run()` promises, however programs are started. */
export function runSuite(): void {
  it('resolves what the program wrote', async () => {
    expect(await run('sh', ['-c', 'echo out; echo err >&2'])).toEqual({ stdout: 'out\n', stderr: 'err\n' });
  });

  it('hands over standard input', async () => {
    expect((await run('cat', [], { stdin: 'hello' })).stdout).toBe('hello');
  });

  it('rejects an exit code other than 0 with the words of the program', async () => {
    const error = await run('sh', ['-c', 'echo broken >&2; exit 3']).catch((caught: unknown) => caught);
    expect(error).toBeInstanceOf(RunError);
    expect(error).toMatchObject({
      reason: 'exit',
      exitCode: 3,
      stderr: 'broken\n',
      message: '"sh" exited with 3: broken',
    });
  });

  it('rejects a program that does not exist', async () => {
    await expect(run('/nonexistent/program', [])).rejects.toMatchObject({ reason: 'spawn', errno: 'ENOENT' });
  });

  it('rejects one that a signal ended', async () => {
    await expect(run('sh', ['-c', 'kill -TERM $$'])).rejects.toMatchObject({
      reason: 'signal',
      exitCode: null,
    });
  });

  it('kills at the deadline even if a grandchild holds the pipes', async () => {
    await expect(run('sh', ['-c', 'sleep 5 & sleep 5'], { timeoutMs: 50 })).rejects.toMatchObject({
      reason: 'timeout',
    });
  });

  it('kills when aborted, and does not start when aborted before', async () => {
    const abort = new AbortController();
    const running = run('sleep', ['5'], { signal: abort.signal });
    abort.abort();
    await expect(running).rejects.toMatchObject({ reason: 'aborted' });
    await expect(run('sleep', ['5'], { signal: abort.signal })).rejects.toMatchObject({ reason: 'aborted' });
  });

  it('keeps no more output than was asked for', async () => {
    const { stdout } = await run('sh', ['-c', 'yes | head -c 300000'], { keepBytes: 1000 });
    expect(stdout).toHaveLength(1000);
  });

  it('has the environment and the directory that were asked for, and no other', async () => {
    const { stdout } = await run('/bin/sh', ['-c', 'pwd; env | sort'], {
      cwd: '/usr',
      env: { A: 'b=c', U: '€' },
    });
    expect(stdout.split('\n')).toEqual(expect.arrayContaining(['/usr', 'A=b=c', 'U=€']));
    expect(stdout).not.toContain('PATH=/');
  });

  it('looks for the program where the environment says', async () => {
    await expect(run('true', [], { env: { PATH: '/nonexistent' } })).rejects.toMatchObject({
      errno: 'ENOENT',
    });
  });

  it('does not wait for what a silent program leaves behind', async () => {
    const begun = performance.now();
    await run('sh', ['-c', 'sleep 5 &'], { silent: true });
    expect(performance.now() - begun).toBeLessThan(4000);
  });

  it('writes more input than a pipe holds, and survives a program that reads none of it', async () => {
    const stdin = 'x'.repeat(1_000_000);
    expect((await run('wc', ['-c'], { stdin })).stdout.trim()).toBe('1000000');
    await run('true', [], { stdin });
  });

  it('runs many at once', async () => {
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, n) =>
        run('sh', ['-c', `echo ${n}; exit ${n % 2}`]).catch((error: RunError) => error),
      ),
    );
    expect(all.map(({ stdout }) => Number(stdout))).toEqual(Array.from({ length: 50 }, (_, n) => n));
  });
}
