import { Sandbox } from 'e2b';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { whyNoLocal } from '../support/local-platform.ts';
import { openE2bPlatform, eventually, type E2bPlatform } from './e2b-platform.ts';

const why = whyNoLocal();
if (why) console.warn(`E2B's client across a restart is not tested: ${why}`);

describe.skipIf(why)("E2B's client across a restart of the server", () => {
  let platform: E2bPlatform;
  beforeAll(async () => {
    platform = await openE2bPlatform('runc');
  });
  afterAll(() => platform[Symbol.asyncDispose]());

  it('goes on with its sandbox, its token, its addresses and its commands', async () => {
    const sandbox = await Sandbox.create({ ...platform.access, metadata: { kept: 'yes' } });
    await sandbox.files.write('note', 'kept');
    const url = await sandbox.downloadUrl('note');
    await sandbox.commands.run('mkfifo /tmp/go');
    const { pid } = await sandbox.commands.run('read line; echo $line > answer', {
      background: true,
      stdin: true,
      timeoutMs: 0,
    });
    await sandbox.commands.run(
      'read go < /tmp/go; head -c 20000000 /dev/zero | tr "\\0" x; echo said > /tmp/said',
      {
        background: true,
        timeoutMs: 0,
      },
    );
    await platform.restart();
    expect(await sandbox.isRunning()).toBe(true);
    expect((await sandbox.getInfo()).metadata).toEqual({ kept: 'yes' });
    expect(await sandbox.files.read('note')).toBe('kept');
    expect(await (await fetch(url)).text()).toBe('kept');
    expect((await sandbox.commands.list()).map((process) => process.pid)).toContain(pid);
    await sandbox.commands.sendStdin(pid, 'still here\n');
    await eventually(
      async () =>
        (await sandbox.files.exists('answer')) && (await sandbox.files.read('answer')) === 'still here\n',
    );
    // A command whose client has disconnected does not wait for a reader.
    await sandbox.commands.run('echo go > /tmp/go');
    await eventually(() => sandbox.files.exists('/tmp/said'));
    await sandbox.kill();
  });
});
