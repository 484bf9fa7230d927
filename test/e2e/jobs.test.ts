/**
 * A sandbox that runs one job, as an orchestrator has it from the command line: claim, status, logs, wait,
 * release.
 */
import type { Sandbox, SandboxStatus, Waited } from '@cay/sdk';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ended, openCay, type Cay } from '../support/cay.ts';

let cay: Cay;
beforeAll(async () => {
  cay = await openCay({ CAY_RUNTIME: 'runc' });
});
afterAll(() => cay[Symbol.asyncDispose]());

async function create(name: string, script: string, ...flags: string[]): Promise<void> {
  const { code, stderr } = await cay.run('create', '--name', name, ...flags, '--', 'sh', '-c', script);
  expect(code, stderr).toBe(0);
}

describe('a sandbox that runs one job', () => {
  it('is claimed, looked at, read, waited for and released', async () => {
    await create('job', 'echo begun; until [ -e go ]; do sleep 0.02; done; echo over >&2; exit 3');
    const { uid } = await cay.json<Sandbox['info']>('inspect', 'job');
    expect(await cay.json<SandboxStatus>('status', 'job')).toMatchObject({
      uid,
      phase: 'active',
      complete: false,
      active: 1,
    });
    expect(await cay.run('wait', 'job', '--timeout', '100ms')).toMatchObject({
      code: 124,
      stdout: '',
      stderr: expect.stringContaining('has not ended') as string,
    });
    await cay.run('exec', 'job', '--', 'touch', 'go');
    expect(await cay.run('wait', 'job', '--timeout', '30s')).toMatchObject({
      code: 3,
      stdout: 'exited 3\n',
      stderr: '',
    });
    await cay.run('exec', 'job', '--', 'echo', 'not this one');
    expect(await cay.run('logs', 'job')).toMatchObject({ code: 0, stdout: 'begun\n', stderr: 'over\n' });
    expect(await cay.run('logs', 'job', '--tail', '5')).toMatchObject({ stdout: '', stderr: 'over\n' });
    expect(await cay.run('logs', 'job', '--since', '1h', '--limit', '3')).toMatchObject({
      stdout: 'beg',
      stderr: '',
    });
    expect(await cay.run('logs', 'job', '--since', '2100-01-01')).toMatchObject({ stdout: '', stderr: '' });
    expect((await cay.run('logs', 'job', '--since', 'soon')).code).toBe(64);

    await cay.run('stop', 'job');
    const status = await cay.run('status', 'job');
    expect(status).toMatchObject({ code: 0, stderr: '' });
    expect(status.stdout).toMatch(
      /^stopped, complete\n {2}commands +0 active, 0 succeeded, 1 failed\n {2}its own +exited 3\n/,
    );
    expect(await cay.run('wait', 'job')).toMatchObject({ code: 3 });
    expect((await cay.run('logs', 'job')).stdout).toBe('begun\n');
    expect((await cay.run('rm', 'job')).code).toBe(0);
    expect((await cay.run('status', 'job')).code).toBe(66);
  });

  it('is waited for while its memory is on disk, and goes on where it was', async () => {
    const script = 'echo begun; until [ -e go ]; do sleep 0.02; done; echo over; exit 5';
    await create('rested', script, '--runtime', 'runsc');
    const { uid } = await cay.json<Sandbox['info']>('inspect', 'rested');
    const waiting = ended(cay.start('wait', 'rested', '--timeout', '60s'));
    const paused = await cay.run('pause', 'rested', '--as', 'hibernated');
    expect(paused, paused.stderr).toMatchObject({ code: 0 });
    expect(await cay.json<SandboxStatus>('status', 'rested')).toMatchObject({
      phase: 'paused',
      complete: false,
      active: 1,
    });
    expect((await cay.run('wait', 'rested', '--timeout', '100ms')).code).toBe(124);
    expect(await cay.json<SandboxStatus>('status', 'rested')).toMatchObject({ phase: 'paused' });
    await cay.run('resume', 'rested');
    expect((await cay.json<SandboxStatus>('status', 'rested')).uid).not.toBe(uid);
    await cay.run('exec', 'rested', '--', 'touch', 'go');
    expect(await waiting).toMatchObject({ code: 5 });
    expect(await cay.run('logs', 'rested')).toMatchObject({ stdout: 'begun\nover\n' });
  }, 60_000);

  it('is lost for a client that waits when the sandbox is removed', async () => {
    await create('gone', 'echo begun; sleep 1000');
    const waiting = ended(cay.start('wait', 'gone', '--json'));
    await cay.run('wait', 'gone', '--timeout', '1s');
    await cay.run('rm', 'gone');
    const { code, stdout } = await waiting;
    expect(code).toBe(125);
    expect(JSON.parse(stdout) as Waited).toMatchObject({
      outcome: 'lost',
      end: { kind: 'lost' },
      status: { complete: true },
    });
  });

  it('is waited for by the id of a command, and refused without one where it has none of its own', async () => {
    expect((await cay.run('create', '--name', 'plain')).code).toBe(0);
    expect(await cay.run('wait', 'plain')).toMatchObject({
      code: 125,
      stderr: expect.stringContaining('hint:') as string,
    });
    const id = (await cay.run('exec', '--detach', 'plain', '--', 'sh', '-c', 'kill -TERM $$')).stdout.trim();
    expect(await cay.run('wait', 'plain', id)).toMatchObject({ code: 143, stdout: 'ended by SIGTERM\n' });
    expect((await cay.run('wait', 'plain', 'none')).code).toBe(125);
  });
});
