/**
 * Git over SSH with a key that the sandbox does not have. The server speaks SSH to the program, as a host
 * whose key the sandbox knows, and to the target with the stored key, after it has checked the target's host
 * key. The program is known by its connection, so that it needs no key. What it may run there are git's own
 * commands.
 */
import { once } from 'node:events';
import type { Duplex, Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Put } from '@cay/sdk/protocol';
import type { Client, ClientChannel, Connection as InnerSsh, ServerChannel, Session } from 'ssh2';
import { drained } from '../../lib/drained.ts';
import { Denial } from '../carrier/denial.ts';

export type SshPut = Extract<Put, { as: 'ssh' }>;

/** One connection of a program to a target that a rule puts an SSH key on. */
export interface SshConnection {
  readonly name: string;
  readonly put: SshPut;
  /** The private key, as `ssh-keygen` writes it. */
  readonly key: string;
  /** Connects to the target. */
  dial(): Promise<Duplex>;
  /** Records a command. Answers what ends the record. */
  begin(program: string, path: string): (denial?: Denial) => void;
  /** Counts and checks bytes; answers for how long to wait. Throws a `Denial`. */
  spend(direction: 'out' | 'in', chunk: Buffer): number;
  /** The program or the target is gone. */
  end(denial?: Denial): void;
}

export interface SshProxy {
  take(stream: Duplex, connection: SshConnection): Promise<void>;
}

const READY_MS = 20_000;
const MAX_SESSIONS = 4;
/** As git quotes: within single quotes, in which `'` and `!` are written `'\''` and `'\!'`. */
const GIT_COMMAND = /^git[- ](upload-pack|receive-pack|upload-archive) '((?:[^'\0\n]|'\\['!]'){1,1024})'$/;

/** Read when the first rule needs it. */
const loadSsh = async () => (await import('ssh2')).default;

export function sshProxy(hostKey: string): SshProxy {
  return {
    async take(stream, connection) {
      const { Server } = await loadSsh();
      const server = new Server({ hostKeys: [hostKey], ident: 'Cay' }, (inner) =>
        serveProgram(inner, connection),
      );
      // It listens nowhere: it is given this one stream.
      server.injectSocket(stream);
    },
  };
}

function serveProgram(inner: InnerSsh, connection: SshConnection): void {
  let upstream: Promise<Client> | undefined;
  let sessions = 0;
  // The connection is the sandbox's own, so that whoever speaks on it may.
  inner.on('authentication', (context) => context.accept());
  inner.on('error', () => {});
  inner.on('close', () => {
    upstream?.then(
      (client) => client.end(),
      () => {},
    );
    connection.end();
  });
  inner.on('session', (accept, reject) => {
    if (++sessions > MAX_SESSIONS) return reject();
    const session = accept();
    const env: Record<string, string> = {};
    session.on('env', (agree, _refuse, { key, val }) => {
      // Which version of git's protocol is spoken; nothing else is passed on.
      if (key === 'GIT_PROTOCOL' && /^version=\d$/.test(val)) env[key] = val;
      agree?.();
    });
    onExec(session, connection, env, () => (upstream ??= connectUpstream(connection)));
  });
}

function onExec(
  session: Session,
  connection: SshConnection,
  env: Record<string, string>,
  upstream: () => Promise<Client>,
): void {
  session.on('exec', (accept, _reject, { command }) => {
    const channel = accept();
    const [, program, path] = GIT_COMMAND.exec(command) ?? [];
    const end = connection.begin(program === undefined ? 'exec' : `git-${program}`, path ?? '');
    run(channel, command, program !== undefined).then(
      () => end(),
      (error: unknown) => {
        const denial = Denial.from(error, 'connect', 'The target does not answer over SSH');
        channel.stderr.write(`Cay: ${denial.message}.\n`);
        channel.exit(1);
        channel.end();
        end(denial);
      },
    );
  });

  async function run(channel: ServerChannel, command: string, isGit: boolean): Promise<void> {
    channel.on('error', () => {});
    if (!isGit && connection.put.commands !== 'any')
      throw new Denial(
        'secret',
        'The rule of this SSH key allows git to fetch and push, and no other command',
      );
    const client = await upstream();
    const remote = await new Promise<ClientChannel>((resolve, reject) =>
      client.exec(command, { env }, (error, opened) => (error ? reject(error) : resolve(opened))),
    );
    remote.on('error', () => {});
    channel.once('close', () => remote.close());
    let code = 255;
    remote.on('exit', (given: number | null) => (code = given ?? 255));
    const closed = once(remote, 'close');
    const input = pump(channel, remote, (chunk) => connection.spend('out', chunk)).then(() => remote.end());
    input.catch(() => remote.close());
    const back = (chunk: Buffer) => connection.spend('in', chunk);
    await Promise.all([pump(remote, channel, back), pump(remote.stderr, channel.stderr, back)]);
    await closed;
    channel.exit(code);
    channel.end();
  }
}

async function pump(from: Readable, to: Writable, spend: (chunk: Buffer) => number): Promise<void> {
  for await (const chunk of from as AsyncIterable<Buffer>) {
    const wait = spend(chunk);
    if (wait > 0) await sleep(wait);
    if (!to.write(chunk)) await drained(to);
  }
}

async function connectUpstream({ name, put, key, dial }: SshConnection): Promise<Client> {
  const known = put.knownHosts.map(hostKeyOf);
  const sock = await dial();
  const { Client } = await loadSsh();
  const client = new Client();
  const { promise, resolve, reject } = Promise.withResolvers<Client>();
  let refused = false;
  client.on('ready', () => resolve(client));
  client.on('error', () =>
    reject(
      refused
        ? new Denial('tls', `The SSH host key of ${name} is none of those that the rule has in "knownHosts"`)
        : new Denial('connect', `SSH with ${name} failed: the target refuses the key, or does not speak SSH`),
    ),
  );
  client.on('close', () => reject(new Denial('closed', `${name} ended the connection`)));
  try {
    client.connect({
      sock,
      username: put.username ?? 'git',
      privateKey: key,
      readyTimeout: READY_MS,
      hostVerifier(offered: Buffer) {
        refused = !known.includes(offered.toString('base64'));
        return !refused;
      },
    });
  } catch {
    // What the library says about a key that it cannot read may quote it.
    throw new Denial(
      'secret',
      `The secret "${put.secret}" is no private key that can be used without a passphrase`,
    );
  }
  return promise;
}

/** The key of a line of `known_hosts`, or of `ssh-keyscan`: its part in base64. */
function hostKeyOf(line: string): string {
  return line.split(/\s+/).find((part) => part.startsWith('AAAA')) ?? '';
}
