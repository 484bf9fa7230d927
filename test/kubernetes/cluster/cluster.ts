/**
 * A real cluster of the test's own, in one directory that is removed with it.
 *
 * `control-plane`: etcd, API server and controllers, as any user: objects, controllers, rights, watches, and
 * no node. `full`: also a scheduler and a node with containerd, runc and, where it can be had, gVisor; needs
 * root. It lives in mount, network and process namespaces of its own, so that killing one process ends all of
 * it.
 */
import { execFile, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import type { Server } from 'node:net';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { AGENT_SANDBOX, agentSandboxController, installAgentSandbox } from './agent-sandbox.ts';
import { cgroupOf, cpuUsageMsOf, makeCgroups, removeCgroups } from './cgroups.ts';
import { makeCertificates, NODE_IP, writeKubeconfig } from './certificates.ts';
import { controlPlane, OWN_PORTS, type Daemon, type Ports } from './control-plane.ts';
import { ctrOf } from './ctr.ts';
import { makeNode, NODE_BRIDGE, PAUSE_IMAGE } from './node.ts';
import { installParts, type Part } from './parts.ts';
import { programLayer, writeImage } from './image.ts';
import { relayFrom } from './relay.ts';
import { untilUsable } from './until-usable.ts';
import { freePorts } from '../../support/free-ports.ts';

const run = promisify(execFile);
const RUN_DAEMONS = fileURLToPath(new URL('run-daemons', import.meta.url));
const RELAY = fileURLToPath(new URL('relay.ts', import.meta.url));
const STOP_MS = 20_000;
const PREFIX = '/tmp/cay-cluster-';

export type Tier = 'control-plane' | 'full';

const PARTS: Record<Tier, Part[]> = {
  'control-plane': ['debian', 'kubernetes'],
  full: ['debian', 'kubernetes', 'containerd', 'gvisor'],
};

export interface ClusterOptions {
  /** With the controller and the kinds of agent-sandbox. */
  agentSandbox?: boolean;
  /** After how long without a word the node counts as lost. Default: as clusters do. */
  lossSeconds?: number;
  /** How often the kubelet looks at how much pods have written. Default: as clusters do, each minute. */
  diskSeconds?: number;
}

function partsOf(tier: Tier, { agentSandbox = false }: ClusterOptions): Part[] {
  return [...PARTS[tier], ...(agentSandbox ? [AGENT_SANDBOX] : [])];
}

export interface Cluster {
  readonly directory: string;
  /** A kubeconfig with every right, for this process. */
  readonly kubeconfig: string;
  /** Why pods cannot have gVisor here, or `undefined` if they can. */
  readonly whyNoGvisor: string | undefined;
  /** The words that put the command line after them into the network of the cluster. */
  readonly enter: string[];
  /** containerd's own client, on the containers of pods. */
  ctr(...args: string[]): Promise<string>;
  /** Takes an image in, from a docker-archive. */
  importImage(file: string): Promise<void>;
  /** Ends a program, and keeps it from being started again. */
  hold(name: string): Promise<void>;
  /** Starts a program that was held. */
  release(name: string): Promise<void>;
  signal(name: string, signal: NodeJS.Signals): Promise<void>;
  /** The last lines of what a program said. */
  log(name: string, lines?: number): string;
  /** How long a pod has used the processor, as Linux counts it. */
  cpuUsageMs(pod: string): number;
  stop(): Promise<void>;
}

/**
 * Why no such cluster can be started here, or `undefined` if one can. The first time this builds what is
 * missing.
 */
export async function whyNoCluster(
  tier: Tier,
  options: ClusterOptions & { gvisor?: boolean } = {},
): Promise<string | undefined> {
  if (process.platform !== 'linux') return 'it needs Linux';
  if (tier === 'full' && process.getuid?.() !== 0) return 'a node needs root';
  if (tier === 'full' && !(await canUnshare())) return 'namespaces cannot be made here';
  const needed = partsOf(tier, options).filter((part) => options.gvisor || part !== 'gvisor');
  const parts = await installParts(needed);
  return needed.map(parts.whyNot).find((reason) => reason !== undefined);
}

function canUnshare(): Promise<boolean> {
  return run('unshare', ['-m', '-n', '-p', '-f', 'true']).then(
    () => true,
    () => false,
  );
}

export async function startCluster(tier: Tier, options: ClusterOptions = {}): Promise<Cluster> {
  const full = tier === 'full';
  const parts = await installParts(partsOf(tier, options));
  await sweep();
  const directory = await mkdtemp(PREFIX);
  await writeFile(`${directory}/owner`, String(process.pid));
  const ports = full ? OWN_PORTS : await ownPorts();
  const cgroup = cgroupOf(directory);
  let child: ChildProcess | undefined;
  let relay: Server | undefined;

  const kill = () => {
    if (child?.pid === undefined || child.exitCode !== null || child.signalCode !== null) return;
    // With namespaces `--kill-child` takes the first process along; without, all are of one process group.
    process.kill(full ? child.pid : -child.pid, 'SIGKILL');
  };
  process.once('exit', kill);

  async function stop(): Promise<void> {
    relay?.close();
    if (child) {
      const ended =
        child.exitCode !== null || child.signalCode !== null
          ? undefined
          : new Promise((resolve) => child?.once('exit', resolve));
      kill();
      await ended;
    }
    process.removeListener('exit', kill);
    if (full) await removeCgroups(cgroup);
    await rm(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  }

  async function signal(name: string, which: NodeJS.Signals): Promise<void> {
    const pid = (await readFile(`${directory}/pids/${name}`, 'utf8')).trim();
    // Numbers are those of the namespace; the first process in it is the one child of the one we started.
    const enter = full ? ['nsenter', '-t', String(firstProcess(child!.pid!)), '-p', '-m'] : [];
    const [program, ...args] = [...enter, 'kill', `-${which}`, pid];
    await run(program!, args);
  }

  try {
    await Promise.all(['daemons', 'held', 'pids', 'logs'].map((name) => mkdir(`${directory}/${name}`)));
    const [daemons] = await Promise.all([
      full
        ? makeNode({
            parts,
            directory,
            cgroup,
            lossSeconds: options.lossSeconds,
            diskSeconds: options.diskSeconds,
          })
        : [],
      makeCertificates(`${directory}/pki`),
      full ? makeCgroups(cgroup) : undefined,
    ]);
    const server = `https://127.0.0.1:${ports.api}`;
    await Promise.all(
      ['admin', ...(full ? ['scheduler', 'kubelet'] : [])].map((name) =>
        writeKubeconfig(`${directory}/pki`, name, server),
      ),
    );
    const all = [
      ...controlPlane({ parts, directory, ports, nodes: full, lossSeconds: options.lossSeconds }),
      ...daemons,
    ];
    if (full)
      all.push({
        name: 'relay',
        argv: [process.execPath, RELAY, `${directory}/api.sock`, String(ports.api)],
      });
    if (options.agentSandbox) {
      all.push(agentSandboxController(parts, directory));
      // It ends at once where its kinds are not known.
      await writeFile(`${directory}/held/${AGENT_SANDBOX}`, '');
    }
    await Promise.all(all.map((daemon) => writeDaemon(directory, daemon)));
    child = full
      ? spawn(
          'unshare',
          ['-m', '-n', '-p', '-f', '--mount-proc', '--kill-child', RUN_DAEMONS, directory, '--node'],
          {
            stdio: ['pipe', 'ignore', 'ignore'],
            env: { ...process.env, NODE_IP, NODE_BRIDGE },
          },
        )
      : spawn(RUN_DAEMONS, [directory], { stdio: ['pipe', 'ignore', 'ignore'], detached: true });
    const led = full ? await relayFrom(`${directory}/api.sock`) : undefined;
    relay = led?.server;
    const port = led?.port ?? ports.api;
    const kubeconfig = await writeKubeconfig(
      `${directory}/pki`,
      'admin',
      `https://127.0.0.1:${port}`,
      `${directory}/kubeconfig`,
    );

    const cluster: Cluster = {
      directory,
      kubeconfig,
      enter: full ? ['nsenter', '-t', String(firstProcess(child.pid!)), '-n'] : [],
      whyNoGvisor: full ? parts.whyNot('gvisor') : 'there is no node',
      ctr: full ? await ctrOf(directory) : () => Promise.reject(new Error('There is no node')),
      async importImage(file) {
        await cluster.ctr('images', 'import', file);
      },
      async hold(name) {
        await writeFile(`${directory}/held/${name}`, '');
        await signal(name, 'SIGKILL');
        await until(`${name} has ended`, () => !existsSync(`${directory}/pids/${name}`));
      },
      async release(name) {
        await rm(`${directory}/held/${name}`);
        await until(`${name} was started`, () => existsSync(`${directory}/pids/${name}`));
      },
      signal,
      cpuUsageMs: cpuUsageMsOf(directory),
      log: (name, lines = 20) => tail(`${directory}/logs/${name}`, lines),
      stop,
    };
    const pause = full ? importPause(cluster, parts.directory('kubernetes')) : undefined;
    await Promise.all([pause, untilUsable(cluster, { nodes: full })]);
    if (options.agentSandbox) await installAgentSandbox(cluster, parts);
    return cluster;
  } catch (error) {
    const said = readdirSync(`${directory}/logs`).map(
      (name) => `--- ${name}\n${tail(`${directory}/logs/${name}`, 8)}`,
    );
    if (process.env['CAY_KEEP_CLUSTER']) console.error(`kept for a look: ${directory}`);
    else await stop();
    throw new Error(`The cluster did not start: ${(error as Error).message}\n${said.join('\n')}`, {
      cause: error,
    });
  }
}

/** Removes what is left of clusters whose owners were killed; their processes have ended with them. */
async function sweep(): Promise<void> {
  for (const name of readdirSync('/tmp').filter((each) => `/tmp/${each}`.startsWith(PREFIX))) {
    const directory = `/tmp/${name}`;
    const owner = await readFile(`${directory}/owner`, 'utf8').catch(() => undefined);
    if (owner === undefined || existsSync(`/proc/${owner}`)) continue;
    await removeCgroups(cgroupOf(directory));
    await rm(directory, { recursive: true, force: true, maxRetries: 10, retryDelay: 200 });
  }
}

async function importPause(cluster: Cluster, kubernetes: string): Promise<void> {
  const file = `${cluster.directory}/pause.tar`;
  await writeImage(file, {
    name: PAUSE_IMAGE,
    layer: await programLayer(`${kubernetes}/pause`, 'pause'),
    entrypoint: ['/pause'],
  });
  await until('containerd listens', () => existsSync(`${cluster.directory}/containerd.sock`));
  await cluster.importImage(file);
}

async function writeDaemon(directory: string, { name, argv, env = {} }: Daemon): Promise<void> {
  const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;
  const lines = Object.entries(env).map(([key, value]) => `export ${key}=${quote(value)}\n`);
  await writeFile(`${directory}/daemons/${name}`, `${lines.join('')}exec ${argv.map(quote).join(' ')}\n`);
}

function firstProcess(unshare: number): number {
  return Number(readFileSync(`/proc/${unshare}/task/${unshare}/children`, 'utf8').trim().split(' ')[0]);
}

async function ownPorts(): Promise<Ports> {
  const names = Object.keys(OWN_PORTS);
  const ports = await freePorts(names.length);
  return Object.fromEntries(names.map((name, at) => [name, ports[at]!])) as unknown as Ports;
}

async function until(what: string, holds: () => boolean): Promise<void> {
  const deadline = Date.now() + STOP_MS;
  while (!holds()) {
    if (Date.now() > deadline) throw new Error(`It took too long until ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

function tail(file: string, lines: number): string {
  return existsSync(file) ? readFileSync(file, 'utf8').trimEnd().split('\n').slice(-lines).join('\n') : '';
}
