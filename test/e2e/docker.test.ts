import { execFile } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openCay, type Cay } from '../support/cay.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';

const reason = whyNoDockerd();
if (reason) console.log(`skipped: no Docker engine can be started here: ${reason}`);

describe.skipIf(reason)('the command line on Docker', () => {
  let docker: Dockerd;
  let cay: Cay;
  let dir: string;
  beforeAll(async () => {
    [docker, dir] = await Promise.all([startDockerd(), mkdtemp('/tmp/cay-e2e-docker-')]);
    await docker.importBaseImage('own-base');
    // Nothing but the flags says which engine and image.
    cay = await openCay({ DOCKER_HOST: 'unix:///nonexistent/docker.sock' });
    const flags = ['--backend', 'docker', '--docker-host', docker.host, '--docker-image', 'own-base'];
    const { code, stderr } = await cay.run('up', '--detach', ...flags);
    expect(code, stderr).toBe(0);
  });
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await docker?.stop();
    if (dir) await rm(dir, { recursive: true, force: true });
  });

  const containers = async () => {
    const { stdout } = await promisify(execFile)('docker', [
      '--host',
      docker.host,
      'ps',
      '--all',
      '--format',
      '{{.Image}} {{.Names}}',
    ]);
    return stdout.trim().split('\n').filter(Boolean);
  };

  it('creates a sandbox as a container, and runs commands in it', async () => {
    const created = await cay.run('create', '--name', 'box');
    expect(created).toMatchObject({ code: 0, stdout: expect.stringMatching(/^sbx_\w+\n$/) as string });
    expect(await containers()).toEqual([expect.stringContaining(created.stdout.trim())]);
    expect(await cay.run('exec', 'box', '--', 'sh', '-c', 'echo out; echo err >&2; exit 3')).toEqual({
      code: 3,
      stdout: 'out\n',
      stderr: 'err\n',
    });
    expect(await cay.run('exec', '-i', 'box', 'cat', { input: 'through docker' })).toMatchObject({
      code: 0,
      stdout: 'through docker',
    });
  });

  it('copies files in and out', async () => {
    await writeFile(join(dir, 'in'), 'content', { mode: 0o640 });
    expect((await cay.run('cp', join(dir, 'in'), 'box:/home/user/copy')).code).toBe(0);
    expect(await cay.run('exec', 'box', 'stat', '-c', '%a %U', 'copy')).toMatchObject({
      stdout: '640 user\n',
    });
    expect((await cay.run('cp', 'box:copy', join(dir, 'out'))).code).toBe(0);
    expect(await readFile(join(dir, 'out'), 'utf8')).toBe('content');
  });

  it('runs a command in a sandbox of its own', async () => {
    expect(await cay.run('run', '--', 'echo', 'hello')).toEqual({ code: 0, stdout: 'hello\n', stderr: '' });
  });

  it('removes the container with the sandbox', async () => {
    expect((await cay.run('rm', 'box')).code).toBe(0);
    expect(await containers()).toEqual([]);
  });

  it('removes what is left when everything is destroyed, on the engine that has it', async () => {
    await cay.run('create');
    expect(await containers()).toHaveLength(1);
    await cay[Symbol.asyncDispose]();
    expect(await containers()).toEqual([]);
  });
});
