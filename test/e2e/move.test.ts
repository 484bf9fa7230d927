import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { MovedSandbox, Sandbox } from '@cay/sdk';
import { openCay, type Cay } from '../support/cay.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';

const reason = whyNoDockerd();
if (reason) console.log(`skipped: no Docker engine can be started here: ${reason}`);

type Info = Sandbox['info'];

describe.skipIf(reason)('a sandbox moves between this machine and Docker', () => {
  let docker: Dockerd;
  let cay: Cay;
  beforeAll(async () => {
    docker = await startDockerd();
    await docker.importBaseImage('own-base');
    cay = await openCay();
    const flags = ['--docker-host', docker.host, '--docker-image', 'own-base', '--runtime', 'runc'];
    const { code, stderr } = await cay.run('up', '--detach', ...flags, '--backend', 'local,docker');
    expect(code, stderr).toBe(0);
  });
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await docker?.stop();
  });

  const sh = async (name: string, line: string) => {
    const { code, stdout, stderr } = await cay.run('exec', name, '--', 'sh', '-c', line);
    expect(code, stderr).toBe(0);
    return stdout;
  };
  const ok = async (...args: string[]) => {
    const ran = await cay.run(...args);
    expect(ran.code, ran.stderr).toBe(0);
    return ran.stdout;
  };

  it('there and back, with its files, owners, modes, turns, labels and environment', async () => {
    await ok('create', '--name', 'box', '-l', 'team=a', '-e', 'WHO=me');
    await sh(
      'box',
      'echo one > note; mkdir -p deep/er; echo x > deep/er/file; chmod 640 note; ln -s note link',
    );
    await ok('turn', 'box');
    await sh('box', 'echo two > note; rm -r deep');
    const before = await cay.json<Info>('inspect', 'box');

    const refused = await cay.run('move', 'box', '--platform', 'docker');
    expect(refused.code).not.toBe(0);
    expect(refused.stderr).toContain('memory');
    const planned = await cay.json<MovedSandbox>('move', 'box', '--platform', 'docker', '--dry-run');
    expect(planned).toMatchObject({ moved: false, plan: { from: 'local', to: 'docker', snapshots: 1 } });
    const lost = planned.plan.losses.map(({ what }) => what);
    expect(lost).toEqual(['memory', 'limits']);

    await ok('move', 'box', '--platform', 'docker', '--drop', ...lost);
    const there = await cay.json<Info>('inspect', 'box');
    const { id, name, labels, createdAtMs, turn } = before;
    expect(there).toMatchObject({ id, name, labels, createdAtMs, turn, platform: 'docker', state: 'active' });
    const looks = 'cat note; stat -c "%a %U" note; readlink link; ls -d deep 2>/dev/null; echo $WHO; id -un';
    const seen = 'two\n640 user\nnote\nme\nuser\n';
    expect(await sh('box', looks)).toBe(seen);
    await sh('box', 'echo three > note');
    await ok('turn', 'box');
    expect(await ok('diff', 'box', '1', '2', '--path', '/home/user')).toBe(
      'D /home/user/deep/\nD /home/user/deep/er/\nD /home/user/deep/er/file\nM /home/user/note\n',
    );
    await ok('rollback', 'box', '1');
    expect(await sh('box', 'cat note deep/er/file')).toBe('one\nx\n');

    await ok('move', 'box', '--platform', 'local', '--drop', 'memory');
    expect(await cay.json<Info>('inspect', 'box')).toMatchObject({ id, platform: 'local', state: 'active' });
    expect(await sh('box', 'cat note; stat -c "%a %U" note; echo $WHO; id -un')).toBe(
      'one\n640 user\nme\nuser\n',
    );
    await ok('rollback', 'box', '2');
    expect(await sh('box', 'cat note; python3 -c "print(1+1)"; getent hosts localhost | wc -l')).toBe(
      'three\n2\n1\n',
    );
    await ok('fork', 'box', '-n', '1', '--name', 'child');
    expect(await sh('child-1', 'cat note')).toBe('three\n');
    await ok('rm', 'child-1', 'box');
    expect(await cay.json<Info[]>('ls')).toEqual([]);
  }, 240_000);
});
