import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runSuite } from '../../../test/conformance/run-suite.ts';
import { guestBinary } from '../guest/guest-binary.ts';
import { openLauncher } from '../lib/launcher.ts';
import { holdLauncher } from '../lib/shared-launcher.ts';

describe('run() through a launcher', () => {
  let release: () => void;
  beforeAll(() => (release = holdLauncher(guestBinary(), ['launch'])));
  afterAll(() => release());
  runSuite();
});

describe('a launcher', () => {
  const request = { env: { PATH: process.env['PATH'] }, keepBytes: 1000 };

  it('that ends is an error for what was asked of it, and is started again', async () => {
    const launcher = openLauncher(guestBinary(), ['launch']);
    const parent = async () => {
      const end = await launcher.launch({ ...request, argv: ['sh', '-c', 'echo $PPID'] }).ended;
      return end.kind === 'exited' ? Number(end.stdout) : NaN;
    };
    const first = await parent();
    const waiting = launcher.launch({ ...request, argv: ['sleep', '30'] }).ended;
    process.kill(first, 'SIGKILL');
    await expect(waiting).rejects.toThrow('SIGKILL');
    const second = await parent();
    expect(second).not.toBe(first);
    launcher.close();
  });

  it.each([['/nonexistent'], ['/bin/false']])('that does not start (%s) is done without', async (program) => {
    const launcher = openLauncher(program, []);
    const launch = () => launcher.launch({ ...request, argv: ['sh', '-c', 'echo $PPID'] });
    const ends = await Promise.all([launch().ended, launch().ended]);
    for (const end of [...ends, await launch().ended])
      expect(end).toMatchObject({ kind: 'exited', stdout: Buffer.from(`${process.pid}\n`) });
    const killed = launcher.launch({ ...request, argv: ['sleep', '30'] });
    killed.kill();
    expect(await killed.ended).toMatchObject({ kind: 'signalled', signal: 'SIGKILL' });
  });

  it('leaves what it has started running when it is closed', async () => {
    const launcher = openLauncher(guestBinary(), ['launch']);
    const file = join(mkdtempSync(join(tmpdir(), 'cay-launcher-')), 'pid');
    const argv = ['sh', '-c', 'echo $$ > "$1.new"; mv "$1.new" "$1"; exec sleep 1000', 'sh', file];
    const { ended } = launcher.launch({ ...request, argv, silent: true });
    await expect.poll(() => existsSync(file), { timeout: 10_000 }).toBe(true);
    launcher.close();
    await expect(ended).rejects.toThrow('exit code 0');
    const pid = Number(readFileSync(file, 'utf8'));
    expect(process.kill(pid, 0)).toBe(true);
    process.kill(pid, 'SIGKILL');
  });
});
