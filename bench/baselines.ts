/** The tools that Cay is compared with, driven by their own command lines. */
import { execFile } from 'node:child_process';
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findRunsc } from '../server/src/host/runtimes/find-runsc.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../test/support/dockerd.ts';

const run = promisify(execFile);

export interface Baselines {
  /** Absent, with the reason printed, where there is no engine. */
  docker: { run(): Promise<void>; exec(): Promise<void> } | undefined;
  runtime(name: 'runc' | 'runsc'): { run(): Promise<void> };
  stop(): Promise<void>;
}

export async function startBaselines(): Promise<Baselines> {
  const dir = await mkdtemp('/tmp/cay-bench-oci-');
  await writeBundle(dir);
  const reason = whyNoDockerd();
  if (reason) console.log(`no comparison with docker: ${reason}`);
  const engine = reason ? undefined : await startDockerd();
  const docker = engine && (await dockerBaseline(engine));
  let counter = 0;
  return {
    docker,
    runtime: (name) => ({
      async run() {
        const flags =
          name === 'runsc'
            ? ['--platform=systrap', '--network=none', '--root', join(dir, 'runsc')]
            : ['--root', join(dir, 'runc')];
        const program = name === 'runsc' ? findRunsc() : name;
        await run(program, [...flags, 'run', '--bundle', dir, `cay-bench-${process.pid}-${++counter}`]);
      },
    }),
    async stop() {
      await engine?.stop();
      // A current runsc leaves a mount in its state directory.
      await run('umount', [join(dir, 'runsc', 'null-netns')]).catch(() => {});
      await rm(dir, { recursive: true, force: true });
    },
  };
}

async function dockerBaseline(engine: Dockerd): Promise<Baselines['docker']> {
  await engine.importBaseImage('bench');
  const docker = (...args: string[]) => run('docker', ['--host', engine.host, ...args]);
  const { stdout } = await docker('run', '--detach', '--network', 'none', 'bench', 'sleep', '100000');
  const id = stdout.trim();
  return {
    run: async () => void (await docker('run', '--rm', '--network', 'none', 'bench', 'true')),
    exec: async () => void (await docker('exec', id, 'true')),
  };
}

/**
 * What `runc spec` writes, running a program on this machine's own /usr, in a network namespace if one is
 * given.
 */
export async function writeBundle(
  dir: string,
  { args = ['/bin/true'], network }: { args?: string[]; network?: string } = {},
): Promise<void> {
  await mkdir(dir, { recursive: true });
  await run('runc', ['spec'], { cwd: dir });
  const root = join(dir, 'rootfs');
  for (const name of ['usr', 'proc', 'sys', 'dev', 'tmp', 'etc'])
    await mkdir(join(root, name), { recursive: true });
  for (const name of ['bin', 'sbin', 'lib', 'lib64']) await symlink(`usr/${name}`, join(root, name));
  await cp('/etc/ld.so.cache', join(root, 'etc/ld.so.cache'));
  const file = join(dir, 'config.json');
  const config = JSON.parse(await readFile(file, 'utf8')) as {
    process: { args: string[]; terminal: boolean; rlimits: unknown[] };
    linux: { namespaces: { type: string; path?: string }[] };
    mounts: unknown[];
  };
  config.process.args = args;
  config.process.rlimits = [{ type: 'RLIMIT_NOFILE', hard: 8192, soft: 8192 }];
  config.process.terminal = false;
  for (const one of config.linux.namespaces)
    if (one.type === 'network' && network !== undefined) one.path = network;
  config.mounts.push({ destination: '/usr', source: '/usr', type: 'bind', options: ['rbind', 'ro'] });
  await writeFile(file, JSON.stringify(config));
}
