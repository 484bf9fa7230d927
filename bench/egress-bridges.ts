/**
 * What the connections of sandboxes are compared with: a Docker bridge, and gVisor's own netstack on a
 * network card.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { findRunsc } from '../server/src/host/runtimes/find-runsc.ts';
import { startDockerd } from '../test/support/dockerd.ts';
import { writeBundle } from './baselines.ts';
import { CLIENT } from './egress-programs.ts';

const run = promisify(execFile);
const ip = (...words: string[]) => run('ip', words);

/** Where the client runs, and the address of the machine that it connects to. */
export interface Bridge extends AsyncDisposable {
  readonly what: string;
  readonly address: string;
  /** Runs the client with these words, and answers what it printed. */
  run(words: readonly string[]): Promise<string>;
}

/** `docker run` on a bridge of the bench's own. */
export async function dockerBridge(): Promise<Bridge> {
  const name = `cayb${process.pid}`;
  const address = '10.231.16.1';
  await ip('link', 'add', name, 'type', 'bridge');
  await ip('addr', 'add', `${address}/24`, 'dev', name);
  await ip('link', 'set', name, 'up');
  const engine = await startDockerd({ bridge: name });
  await engine.importBaseImage('bench');
  return {
    what: 'a Docker bridge, runc',
    address,
    async run(words) {
      const how = ['run', '--rm', '--ulimit', 'nofile=8192', 'bench', 'python3', '-c', CLIENT];
      return (await run('docker', ['--host', engine.host, ...how, ...words])).stdout;
    },
    async [Symbol.asyncDispose]() {
      await engine.stop();
      await ip('link', 'del', name);
    },
  };
}

/** `runsc run` in a network namespace with one end of a veth pair, which gVisor's netstack takes over. */
export async function gvisorNetstack(): Promise<Bridge> {
  const name = `cayn${process.pid}`;
  const address = '10.231.17.1';
  const dir = await mkdtemp('/tmp/cay-bench-netstack-');
  const state = join(dir, 'state');
  let runs = 0;
  await ip('link', 'add', name, 'type', 'bridge');
  await ip('addr', 'add', `${address}/32`, 'dev', name);
  await ip('link', 'set', name, 'up');
  return {
    what: 'gVisor, its own netstack',
    address,
    async run(words) {
      const [namespace, outer, inner] = [`${name}n${++runs}`, `${name}o`, `${name}i`];
      const within = (...rest: string[]) => ip('-netns', namespace, ...rest);
      await ip('netns', 'add', namespace);
      try {
        await ip('link', 'add', outer, 'type', 'veth', 'peer', 'name', inner, 'netns', namespace);
        await ip('addr', 'add', '10.231.18.1/30', 'dev', outer);
        await ip('link', 'set', outer, 'up');
        await within('addr', 'add', '10.231.18.2/30', 'dev', inner);
        await within('link', 'set', inner, 'up');
        await within('link', 'set', 'lo', 'up');
        await within('route', 'add', 'default', 'via', '10.231.18.1');
        const bundle = join(dir, `bundle-${runs}`);
        const args = ['python3', '-c', CLIENT, ...words];
        await writeBundle(bundle, { args, network: `/run/netns/${namespace}` });
        const flags = ['--platform=systrap', '--network=sandbox', '--root', state];
        const made = await run(findRunsc(), [...flags, 'run', '--bundle', bundle, namespace]);
        return made.stdout;
      } finally {
        await ip('netns', 'del', namespace).catch(() => {});
        await ip('link', 'del', outer).catch(() => {});
      }
    },
    async [Symbol.asyncDispose]() {
      await ip('link', 'del', name);
      await run('umount', [join(state, 'null-netns')]).catch(() => {});
      await rm(dir, { recursive: true, force: true });
    },
  };
}
