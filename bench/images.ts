/**
 * Measures pulls of images beside `docker pull` and `skopeo` with `umoci`, in one run, from a registry on
 * loopback:
 *
 *     node bench/images.ts
 *
 * Two images of 8 layers are made from this machine's /usr; they share 6. Needs root, docker,
 * docker-registry, skopeo and umoci.
 */
import { execFile } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { imageOf, pushImage } from '../server/src/host/images/testing/test-image.ts';
import { openCay } from '../test/support/cay.ts';
import { startRegistry } from '../test/support/docker-registry.ts';
import { startDockerd } from '../test/support/dockerd.ts';

const run = promisify(execFile);
const MB = 1_000_000;
const LAYERS = 10;
const TARGET = (300 * MB) / 8;

/** Layers of about the same size, of packages' files as they are. */
async function layers(): Promise<Buffer[]> {
  const names: string[] = [];
  for (const dir of ['usr/lib/x86_64-linux-gnu', 'usr/share', 'usr/lib/python3', 'usr/lib/gcc', 'usr/bin'])
    for (const name of await readdir(`/${dir}`).catch(() => [])) names.push(`${dir}/${name}`);
  const found: Buffer[] = [];
  let open: string[] = [];
  let bytes = 0;
  for (const name of names) {
    const { stdout } = await run('du', ['-sb', `/${name}`]);
    const size = Number(stdout.split('\t')[0]);
    if (size > TARGET) continue;
    open.push(name);
    bytes += size;
    if (bytes < TARGET) continue;
    const tar = await run('tar', ['-C', '/', '-cf', '-', ...open], {
      encoding: 'buffer',
      maxBuffer: 1024 * MB,
    });
    found.push(tar.stdout);
    [open, bytes] = [[], 0];
    if (found.length === LAYERS) break;
  }
  return found;
}

async function timed(act: () => Promise<unknown>): Promise<string> {
  const from = performance.now();
  await act();
  return `${((performance.now() - from) / 1000).toFixed(2)} s`;
}

const all = await layers();
if (all.length < LAYERS) throw new Error(`this machine has files for ${all.length} layers only`);
const images = [all.slice(0, 8), [...all.slice(0, 6), ...all.slice(8, 10)]];
console.log(
  `${images[0]!.length} layers, ${Math.round(images[0]!.reduce((sum, one) => sum + one.length, 0) / MB)} MB`,
);
const registry = await startRegistry();
const dir = await mkdtemp('/tmp/cay-bench-images-');
const name = (at: number) => `${registry.address}/bench/image:${at}`;
for (const [at, each] of images.entries())
  await pushImage(registry, 'bench/image', String(at), imageOf(each));
const engine = await startDockerd();
const cay = await openCay({ CAY_RUNTIME: 'runc', CAY_INSECURE_REGISTRY: registry.address, CAY_PROBE: 'off' });
try {
  await cay.run('up', '-d');
  const { pid } = JSON.parse(await readFile(join(cay.dataDir, 'server.json'), 'utf8')) as { pid: number };
  const memory = async (key: string) =>
    `${Math.round(Number(new RegExp(`${key}:\\s+(\\d+)`).exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1000)} MB`;
  const before = await memory('VmRSS');
  for (const at of [0, 1]) {
    const insecure = ['--src-tls-verify=false', '--insecure-policy', '-q'];
    const figures = {
      cay: await timed(() => cay.run('image', 'pull', name(at))),
      docker: await timed(() => run('docker', ['-H', engine.host, 'pull', '-q', name(at)])),
      'skopeo + umoci': await timed(async () => {
        await run('skopeo', ['copy', ...insecure, `docker://${name(at)}`, `oci:${dir}/layout:${at}`]);
        await run('umoci', ['raw', 'unpack', '--image', `${dir}/layout:${at}`, `${dir}/root${at}`]);
      }),
    };
    console.log(at === 0 ? 'pull' : 'pull of a second image, 6 of 8 layers shared', figures);
  }
  console.log('first sandbox of a pulled image', await timed(() => cay.run('create', '--image', name(0))));
  console.log('second', await timed(() => cay.run('create', '--image', name(0))));
  console.log('sandbox of base', await timed(() => cay.run('create')));
  console.log(
    'docker create',
    await timed(() => run('docker', ['-H', engine.host, 'create', name(0), '/usr/bin/true'])),
  );
  console.log(`memory of the server: ${before} before, ${await memory('VmHWM')} at most`);
} finally {
  await cay[Symbol.asyncDispose]();
  await engine.stop();
  await registry.stop();
  await rm(dir, { recursive: true, force: true });
}
