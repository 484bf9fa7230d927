/** A real OpenSSH server for tests, with a repository that one key may reach. */
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { freePort } from './free-ports.ts';

export interface TestSshd extends Disposable {
  readonly port: number;
  /** As `known_hosts` has it after the name. */
  readonly hostKey: string;
  /** The private key that it takes. */
  readonly clientKey: string;
}

const PROGRAM = [process.env['CAY_TEST_SSHD'], '/usr/sbin/sshd'].find((path) => path && existsSync(path));

/** Why there is none here; `undefined` if there is one. */
export function sshdMissing(): string | undefined {
  if (PROGRAM === undefined) return 'there is no sshd: run scripts/install-host --tests';
  return process.getuid?.() === 0 ? undefined : 'sshd needs root';
}

/** Keys and files are in `dir`. */
export async function startSshd(dir: string): Promise<TestSshd> {
  for (const name of ['host', 'client'])
    execFileSync('ssh-keygen', ['-q', '-t', 'ed25519', '-N', '', '-f', join(dir, name)]);
  writeFileSync(join(dir, 'authorized'), readFileSync(join(dir, 'client.pub')), { mode: 0o600 });
  const port = await freePort();
  mkdirSync('/run/sshd', { recursive: true });
  const daemon = spawn(
    PROGRAM!,
    [
      ...['-D', '-e', '-f', '/dev/null', '-p', String(port), '-h', join(dir, 'host')],
      ...['-o', 'ListenAddress=127.0.0.1', '-o', `AuthorizedKeysFile=${join(dir, 'authorized')}`],
      ...['-o', 'StrictModes=no', '-o', 'PermitRootLogin=yes', '-o', 'PasswordAuthentication=no'],
      ...['-o', 'PidFile=none', '-o', 'AcceptEnv=GIT_PROTOCOL', '-o', 'UsePAM=no'],
    ],
    { stdio: 'ignore' },
  );
  for (let left = 100; left > 0 && !(await answers(port)); left--) await sleep(50);
  return {
    port,
    hostKey: readFileSync(join(dir, 'host.pub'), 'utf8').trim(),
    clientKey: readFileSync(join(dir, 'client'), 'utf8'),
    [Symbol.dispose]() {
      daemon.kill('SIGKILL');
    },
  };
}

async function answers(port: number): Promise<boolean> {
  const socket = connect(port, '127.0.0.1');
  try {
    await once(socket, 'connect');
    return true;
  } catch {
    return false;
  } finally {
    socket.destroy();
  }
}
