/** A server that is killed and started again under clients in the foreground. */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ended, openCay, printed, type Cay } from '../support/cay.ts';

const TICKS = 'for i in 1 2 3 4 5 6 7 8; do echo tick $i; sleep 0.5; done; exit 7';
const OUTPUT = Array.from({ length: 8 }, (_, index) => `tick ${index + 1}\n`).join('');

describe('clients of a server that is killed and started again', () => {
  let cay: Cay;
  beforeAll(async () => {
    cay = await openCay({ CAY_RUNTIME: 'runc' });
    expect((await cay.run('create', '--name', 'box')).code).toBe(0);
  });
  afterAll(() => cay[Symbol.asyncDispose]());

  async function restart(): Promise<void> {
    const { pid, url } = await cay.json<{ pid: number; url: string }>('status');
    process.kill(pid, 'SIGKILL');
    expect((await cay.run('up', '--detach', '--listen', new URL(url).host)).code).toBe(0);
  }

  it('go on where they were, and end as the command does', async () => {
    const exec = cay.start('exec', 'box', '--', 'sh', '-c', TICKS);
    const run = cay.start('run', '--', 'sh', '-c', TICKS);
    const ends = [ended(exec), ended(run)];
    await Promise.all([printed(exec, 'tick 2'), printed(run, 'tick 2')]);
    const logs = cay.start('logs', '-f', 'box');
    const attach = cay.start('attach', 'box');
    ends.push(ended(logs), ended(attach));
    await Promise.all([printed(logs, 'tick 2'), printed(attach, 'tick 2')]);
    await restart();
    const [executed, ran, logged, attached] = await Promise.all(ends);
    for (const { stdout, stderr } of [executed!, ran!, logged!, attached!]) {
      expect(stdout).toBe(OUTPUT);
      expect(stderr).toMatch(
        /^lost the connection to command cmd_\w+; connecting again…\nconnected again\n$/,
      );
    }
    expect([executed!.code, ran!.code, logged!.code, attached!.code]).toEqual([7, 7, 0, 7]);
    await expect
      .poll(async () => (await cay.run('ls', '-q')).stdout.split('\n').length, { timeout: 10_000 })
      .toBe(2);
  });

  it('do not go on where input may have been lost, and say how to', async () => {
    const child = cay.spawn(['exec', 'box', '--', 'sh', '-c', 'read line; echo got $line; sleep 60'], 'pipe');
    const end = ended(child);
    child.stdin!.write('a line\n');
    await printed(child, 'got a line');
    await restart();
    const { code, stderr } = await end;
    expect(code).toBe(125);
    expect(stderr).toMatch(
      /was given input[^\n]*\nhint: "cay attach box cmd_\w+ --offset 11" goes on from there/,
    );
    await cay.run('kill', '--all', 'box');
  });

  it('give up on SIGINT', async () => {
    const child = cay.start('exec', 'box', '--', 'sh', '-c', 'echo ready; sleep 60');
    const end = ended(child);
    await printed(child, 'ready');
    const { pid, url } = await cay.json<{ pid: number; url: string }>('status');
    process.kill(pid, 'SIGKILL');
    await new Promise<void>((resolve) => child.stderr!.once('data', () => resolve()));
    child.kill('SIGINT');
    expect((await end).code).toBe(130);
    expect((await cay.run('up', '--detach', '--listen', new URL(url).host)).code).toBe(0);
  });
});
