/**
 * Git over SSH through the egress: OpenSSH's client and git outside a sandbox, against a real sshd if there
 * is one.
 */
import { execFile, execFileSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { userInfo } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import type { NetworkPolicy } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sshdMissing, startSshd, type TestSshd } from '../../../../test/support/sshd.ts';
import { openWorld, type World } from '../testing/program.ts';
import { sshHostKey } from './host-key.ts';

const reason = sshdMissing();
const run = promisify(execFile);
const HOST = 'git.example.org';

describe.skipIf(reason !== undefined)(`git over SSH${reason ? ` (skipped: ${reason})` : ''}`, () => {
  const dir = mkdtempSync('/tmp/cay-ssh-');
  const host = sshHostKey(Buffer.alloc(32, 5));
  const user = userInfo().username;
  let daemon: TestSshd;
  let target: number;
  let world: World;
  /** Programs connect to this port as they would in a sandbox. */
  let port: number;
  let stop = () => {};
  let hostKey: string;

  beforeAll(async () => {
    daemon = await startSshd(dir);
    ({ hostKey, port: target } = daemon);
    const git = (...args: string[]) => execFileSync('git', args, { stdio: 'ignore' });
    git('init', '-q', '--initial-branch=main', join(dir, 'work'));
    writeFileSync(join(dir, 'work/hello.txt'), 'hello over SSH\n');
    git('-C', join(dir, 'work'), 'add', '.');
    git(
      '-C',
      join(dir, 'work'),
      '-c',
      'user.name=t',
      '-c',
      'user.email=t@example.org',
      'commit',
      '-qm',
      'one',
    );
    git('clone', '-q', '--bare', join(dir, 'work'), join(dir, 'demo.git'));
    world = openWorld({
      sshHostKey: host.privateKey,
      secrets: () => [{ name: 'KEY', placeholder: 'cay-placeholder-1', value: daemon.clientKey }],
    });
    world.names.set(HOST, ['127.0.0.1']);
    const inside = createServer((socket) => {
      const program = world.connect({ name: HOST, port: target });
      socket.pipe(program.socket).pipe(socket);
      socket.on('error', () => program.socket.destroy());
      program.socket.on('error', () => socket.destroy());
      socket.on('close', () => program.socket.destroy());
    }).listen(0, '127.0.0.1');
    await once(inside, 'listening');
    port = (inside.address() as AddressInfo).port;
    stop = () => void inside.close();
    writeFileSync(join(dir, 'known'), `[127.0.0.1]:${port} ${host.publicKey}\n`);
  }, 60_000);
  afterAll(() => {
    stop();
    daemon?.[Symbol.dispose]();
    world?.egress.close();
    rmSync(dir, { recursive: true, force: true });
  });

  function allow(extra: object = {}): void {
    const put = { as: 'ssh' as const, secret: 'KEY', knownHosts: [hostKey], username: user, ...extra };
    const policy: NetworkPolicy = { allow: [{ to: `${HOST}:${target}`, put }] };
    world.egress.policies.set(world.sandbox, [policy]);
  }
  const options = () => [
    ...['-F', '/dev/null', '-o', `UserKnownHostsFile=${join(dir, 'known')}`, '-o', 'IdentitiesOnly=yes'],
    ...['-o', 'IdentityFile=/dev/null', '-o', 'BatchMode=yes', '-o', 'StrictHostKeyChecking=yes'],
  ];
  const git = (...args: string[]) =>
    run('git', args, {
      env: { PATH: process.env['PATH'], GIT_SSH_COMMAND: `ssh ${options().join(' ')}`, HOME: dir },
      timeout: 30_000,
    });
  const ssh = (command: string) =>
    run('ssh', [...options(), '-p', String(port), 'git@127.0.0.1', command], { timeout: 30_000 }).then(
      ({ stdout }) => ({ code: 0, stdout, stderr: '' }),
      ({ code, stdout, stderr }: { code: number; stdout: string; stderr: string }) => ({
        code,
        stdout,
        stderr,
      }),
    );

  it('clones and pushes with a key that the program does not have', { timeout: 60_000 }, async () => {
    allow();
    const url = `ssh://git@127.0.0.1:${port}${join(dir, 'demo.git')}`;
    const there = join(dir, 'there');
    await git('clone', '-q', url, there);
    expect(readFileSync(join(there, 'hello.txt'), 'utf8')).toBe('hello over SSH\n');
    await git('-C', there, 'push', '-q', 'origin', 'HEAD:pushed');
    const { stdout } = await run('git', ['-C', join(dir, 'demo.git'), 'branch', '--list', 'pushed']);
    expect(stdout).toContain('pushed');
    expect(world.egress.attempts(world.sandbox)).toMatchObject([
      { protocol: 'ssh', method: 'git-receive-pack', verdict: 'allowed' },
      { protocol: 'ssh', method: 'git-upload-pack', path: join(dir, 'demo.git'), verdict: 'allowed' },
    ]);
  });

  it.each([
    'id',
    `git-upload-pack '${'/x'}'; id`,
    "git-upload-pack '/x' '/y'",
    'git-upload-pack $(id)',
    "git-upload-pack '/x'\nid",
    'git-shell',
  ])('does not run %j', { timeout: 60_000 }, async (command) => {
    allow();
    const result = await ssh(command);
    expect(result.code).toBe(1);
    expect(result.stdout).toBe('');
    expect(result.stderr).toContain('allows git to fetch and push, and no other command');
    expect(world.egress.attempts(world.sandbox)[0]).toMatchObject({ verdict: 'denied', reason: 'secret' });
  });

  it('runs other commands where the rule says so', { timeout: 60_000 }, async () => {
    allow({ commands: 'any' });
    expect(await ssh('echo hello; exit 3')).toMatchObject({ code: 3, stdout: 'hello\n' });
  });

  it('does not talk to a host with another key', { timeout: 60_000 }, async () => {
    allow({ knownHosts: [host.publicKey] });
    const result = await ssh("git-upload-pack '/x'");
    expect(result.stderr).toContain('The SSH host key of git.example.org is none of those');
    expect(result.code).toBe(1);
  });

  it('does not go on with forwarding and shells', { timeout: 60_000 }, async () => {
    allow();
    const forward = await run(
      'ssh',
      [...options(), '-p', String(port), '-W', '127.0.0.1:80', 'git@127.0.0.1'],
      { timeout: 30_000 },
    ).then(
      () => 'forwarded',
      ({ stderr }: { stderr: string }) => stderr,
    );
    expect(forward).toMatch(/administratively prohibited|open failed|stdio forwarding failed/);
  });
});
