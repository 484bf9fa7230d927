/**
 * A real PostgreSQL for tests: a server of its own in a temporary directory, on a unix socket, as an
 * unprivileged user.
 */
import { execFile, execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export interface TestPostgres {
  /** Creates an empty database. Resolves its address. */
  createDatabase(): Promise<string>;
  /** Ends the server at once, as a crash does. */
  kill(): Promise<void>;
  start(): Promise<void>;
  /** Ends the connections to a database. */
  disconnect(address: string): Promise<void>;
  stop(): Promise<void>;
}

const LIBRARY = '/usr/lib/postgresql';

function programs(): string | undefined {
  if (!existsSync(LIBRARY)) return undefined;
  return readdirSync(LIBRARY)
    .map((version) => join(LIBRARY, version, 'bin'))
    .find((directory) => existsSync(join(directory, 'initdb')));
}

/** Why there is no PostgreSQL here; `undefined` if there is one. */
export function postgresMissing(): string | undefined {
  if (programs()) return undefined;
  return 'no PostgreSQL server is installed: run scripts/install-host --tests';
}

/** `root` may not run PostgreSQL, so that root becomes `postgres`. */
function unprivileged(): { uid: number; gid: number } | undefined {
  if (process.getuid?.() !== 0) return undefined;
  const id = (flag: string) => Number(execFileSync('id', [flag, 'postgres'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

export async function startPostgres({ durable = false } = {}): Promise<TestPostgres> {
  const bin = programs();
  if (!bin) throw new Error(postgresMissing());
  const user = unprivileged();
  const directory = mkdtempSync(join(tmpdir(), 'cay-pg-'));
  if (user) chownSync(directory, user.uid, user.gid);
  const data = join(directory, 'data');
  const run = { ...user, cwd: directory, env: { PATH: bin, LC_ALL: 'C.UTF-8' } };
  execFileSync(
    join(bin, 'initdb'),
    ['-D', data, '-U', 'cay', '-A', 'trust', '-E', 'UTF8', '--no-sync', '--no-instructions'],
    { ...run, stdio: 'pipe' },
  );
  let server: ChildProcess | undefined;
  let databases = 0;
  const addressOf = (name: string) =>
    `postgres://cay@localhost/${name}?host=${encodeURIComponent(directory)}`;

  async function query(text: string): Promise<void> {
    await promisify(execFile)(join(bin!, 'psql'), ['-X', '-q', '-d', addressOf('postgres'), '-c', text], {
      env: run.env,
    });
  }

  const postgres: TestPostgres = {
    async createDatabase() {
      const name = `cay_${++databases}`;
      await query(`CREATE DATABASE ${name}`);
      return addressOf(name);
    },
    async start() {
      const settings = ['listen_addresses=', `unix_socket_directories=${directory}`, 'max_connections=100'];
      if (!durable) settings.push('fsync=off');
      server = spawn(join(bin, 'postgres'), ['-D', data, ...settings.flatMap((one) => ['-c', one])], {
        ...run,
        stdio: 'ignore',
      });
      const until = Date.now() + 30_000;
      for (;;) {
        try {
          return await query('SELECT 1');
        } catch (error) {
          if (Date.now() > until) throw error;
          await new Promise((resolve) => setTimeout(resolve, 50));
        }
      }
    },
    async kill() {
      if (!server) return;
      const ended = new Promise((resolve) => server!.once('exit', resolve));
      // The postmaster ends its children with SIGQUIT, as "immediate" shutdown does.
      server.kill('SIGQUIT');
      await ended;
      server = undefined;
    },
    disconnect: (address) =>
      query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
         WHERE datname = '${new URL(address).pathname.slice(1)}'`,
      ),
    async stop() {
      await postgres.kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
  try {
    await postgres.start();
  } catch (error) {
    await postgres.stop();
    throw error;
  }
  return postgres;
}
