import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Capabilities, Sandbox, Validation } from '@cay/sdk';
import { openCay, type Cay } from '../support/cay.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';

const reason = whyNoDockerd();
if (reason) console.log(`skipped: no Docker engine can be started here: ${reason}`);

type Info = Sandbox['info'];

describe.skipIf(reason)('one server over this machine and Docker', () => {
  let docker: Dockerd;
  let cay: Cay;
  const up = async (...backend: string[]) => {
    const flags = ['--docker-host', docker.host, '--docker-image', 'own-base', '--runtime', 'runc'];
    const { code, stderr } = await cay.run('up', '--detach', ...flags, ...backend);
    expect(code, stderr).toBe(0);
  };
  const both = ['--backend', 'local,docker', '--platform-rules', 'image=own:docker'];
  const states = async () =>
    Object.fromEntries((await cay.json<Info[]>('ls')).map(({ name, state }) => [name, state]));
  beforeAll(async () => {
    docker = await startDockerd({ liveRestore: true });
    await docker.importBaseImage('own-base');
    cay = await openCay();
    await up(...both);
  });
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await docker?.stop();
  });

  it('makes sandboxes where they are asked for, and works with them alike', async () => {
    for (const [name, flags] of Object.entries({
      here: [],
      there: ['--platform', 'docker'],
      labelled: ['-l', 'image=own'],
    })) {
      const { code, stderr } = await cay.run('create', '--name', name, ...flags);
      expect(code, stderr).toBe(0);
      expect(await cay.run('exec', name, '--', 'sh', '-c', 'echo kept > note; cat note')).toMatchObject({
        code: 0,
        stdout: 'kept\n',
      });
    }
    const all = await cay.json<Info[]>('ls');
    expect(Object.fromEntries(all.map(({ name, platform }) => [name, platform]))).toEqual({
      here: 'local',
      there: 'docker',
      labelled: 'docker',
    });
    expect((await cay.run('ls')).stdout.split('\n')[0]).toMatch(/TEMPLATE +PLATFORM +RUNTIME/);
    expect((await cay.run('inspect', 'there')).stdout).toMatch(/isolation +runc on docker/);
    expect((await cay.run('run', '--platform', 'docker', '--', 'echo', 'hello')).stdout).toBe('hello\n');
  });

  it('says beforehand what the chosen platform cannot do, and refuses it by its name', async () => {
    expect(await cay.run('create', '--dry-run', '--runtime', 'runc')).toMatchObject({
      code: 0,
      stdout: 'would be created on local\n',
    });
    const refused = await cay.run(
      'create',
      '--dry-run',
      '--platform',
      'docker',
      '--disk',
      '1g',
      '--runtime',
      'warp',
    );
    expect(refused.code).toBe(66);
    expect(refused.stdout).toMatch(
      /^would be refused on docker\n {2}not_found .*"warp"[^]* {2}unsupported .* --disk: [^]*leave out --disk/,
    );
    const { ok, problems } = JSON.parse(
      (await cay.run('create', '--dry-run', '--platform', 'moon', '--json')).stdout,
    ) as Validation;
    expect([ok, problems.map(({ code }) => code)]).toEqual([false, ['not_found']]);
    expect(await cay.run('turn', 'there', '--memory')).toMatchObject({
      code: 70,
      stderr: expect.stringContaining('Docker keeps files only') as string,
    });
    for (const name of ['here', 'there']) expect((await cay.run('turn', name)).code).toBe(0);
    expect(await cay.run('create', '--platform', 'moon')).toMatchObject({
      code: 66,
      stderr: 'error: Platform "moon" is unknown\nhint: known platforms: local, docker\n',
    });
  });

  it('starts without its Docker engine, forgets nothing of it, and goes on with it', async () => {
    expect((await cay.run('down')).code).toBe(0);
    await docker.halt();
    await up(...both);
    expect(await states()).toEqual({ here: 'active', there: 'active', labelled: 'active' });
    expect((await cay.run('exec', 'here', 'cat', 'note')).stdout).toBe('kept\n');
    expect((await cay.run('start', 'there')).stderr).toContain('no Docker engine answers');
    expect((await cay.run('status')).stdout).toMatch(/backend +docker: away/);
    await docker.resume();
    await expect
      .poll(async () => (await cay.run('exec', 'there', 'cat', 'note')).stdout, { timeout: 20_000 })
      .toBe('kept\n');
    expect(await states()).toEqual({ here: 'active', there: 'active', labelled: 'active' });
  });

  it('keeps what is on a platform that it is started without', async () => {
    expect((await cay.run('down')).code).toBe(0);
    await up('--backend', 'local');
    expect(await states()).toEqual({ here: 'active', there: 'active', labelled: 'active' });
    expect((await cay.run('exec', 'here', 'cat', 'note')).stdout).toBe('kept\n');
    expect((await cay.run('start', 'there')).stderr).toContain(
      'platform "docker", which this server does not have',
    );
    expect((await cay.run('down')).code).toBe(0);
    await up(...both);
    expect((await cay.run('exec', 'there', 'cat', 'note')).stdout).toBe('kept\n');
  });

  it('removes what both have when everything is destroyed', async () => {
    const { platforms } = await cay.json<{ platforms: NonNullable<Capabilities['platforms']> }>('status');
    expect(platforms).toEqual([{ name: 'local' }, { name: 'docker' }]);
    expect((await cay.run('rm', '--all', '--yes')).code).toBe(0);
    expect(await cay.json<Info[]>('ls')).toEqual([]);
  });
});
