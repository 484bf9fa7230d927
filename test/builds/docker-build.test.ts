/**
 * Templates that Cay builds, beside what Docker builds of the same Dockerfiles: file by file, and how they
 * run.
 */
import { execFile, execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync } from 'node:fs';
import {
  chmod,
  cp,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rm,
  symlink,
  utimes,
  writeFile,
  lutimes,
  lstat,
} from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { Sandbox } from '@cay/sdk/client';
import type { Template } from '@cay/sdk/protocol';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { byteReader } from '../../server/src/lib/byte-reader.ts';
import { readTar } from '../../server/src/lib/tar/read.ts';
import { openCay, type Cay } from '../support/cay.ts';
import { startDockerd, whyNoDockerd, type Dockerd } from '../support/dockerd.ts';
import { whyNoLocal } from '../support/local-platform.ts';
import { whyLater } from '../support/tier.ts';
import { CASES, type Case } from './dockerfiles.ts';

const BUSYBOX = '/bin/busybox';
/** One of so many cases. */
const SHORT_TIER_TAKES = 3;
const missing = [BUSYBOX].find((path) => !existsSync(path));
const why = whyNoLocal() ?? whyNoDockerd() ?? (missing && `${missing} is not installed`);
if (why !== undefined) console.info(`builds beside docker build: skipped: ${why}`);

const run = promisify(execFile);
/** Of all files of the context: what keeps it in an image shows it. */
const OLD = new Date('2001-02-03T04:05:06Z');
const APPLETS =
  'sh cat ls echo id pwd mkdir rmdir chmod chown touch ln rm cp mv env grep test printf kill true false top';

/** What either engine puts into every root filesystem. */
const OF_DOCKER =
  /^(?:\.dockerenv|run|run\/.*|dev|dev\/.*|proc|proc\/.*|sys|sys\/.*|etc\/(?:hostname|hosts|resolv\.conf|mtab))$/;
const OF_SANDBOXES = new Set([
  'dev',
  'etc',
  'home',
  'home/user',
  'proc',
  'root',
  'run',
  'sys',
  'tmp',
  'var',
  'var/tmp',
  'etc/passwd',
  'etc/group',
]);

interface Found {
  type: string;
  mode: number;
  owner: string;
  content: string;
  modifiedAtMs?: number;
}

async function entriesOf(tar: AsyncIterable<Uint8Array>, below = ''): Promise<Map<string, Found>> {
  const found = new Map<string, Found>();
  for await (const entry of readTar(byteReader(tar), { maxExtendedBytes: 1024 * 1024 })) {
    const name = join(below, entry.name)
      .replace(/^\.?\/+/, '')
      .replace(/\/+$/, '');
    if (name === '' || name === '.' || OF_DOCKER.test(name)) continue;
    const hash = createHash('sha256');
    for await (const part of entry.content) hash.update(part);
    if (entry.type === 'hardlink') {
      const to = found.get(join(below, entry.target).replace(/^\.?\/+/, ''));
      if (!to) throw new Error(`${name} links to ${entry.target}, which comes later`);
      found.set(name, to);
      continue;
    }
    found.set(name, {
      type: entry.type,
      // Linux gives symlinks none of their own.
      mode: entry.type === 'symlink' ? 0 : entry.mode,
      owner: `${entry.uid}:${entry.gid}`,
      content: entry.type === 'file' ? hash.digest('hex') : entry.target,
      ...(entry.type === 'file' && { modifiedAtMs: entry.modifiedAtMs }),
    });
  }
  return found;
}

describe.skipIf(why !== undefined)('builds beside docker build', { timeout: 60_000 }, () => {
  let cay: Cay;
  let docker: Dockerd;
  let dir: string;
  let server: { url: string; apiKey: string };
  const engine = (...args: string[]) =>
    run('docker', ['-H', docker.host, ...args], {
      env: { ...process.env, DOCKER_BUILDKIT: '0' },
      maxBuffer: 64 * 1024 * 1024,
    });

  async function makeContext(): Promise<void> {
    const context = join(dir, 'context');
    await mkdir(join(context, 'dir/sub/deep'), { recursive: true });
    await mkdir(join(context, 'empty'));
    const files: Record<string, string> = {
      'a.txt': 'a\n',
      'b.txt': 'b\n',
      'with space.txt': 'space\n',
      'dir/a.md': 'md\n',
      'dir/bb.md': 'bb\n',
      'dir/sub/c.txt': 'c\n',
      'dir/sub/deep/d': 'd\n',
      'script.sh': '#!/bin/sh\n',
    };
    for (const [name, text] of Object.entries(files)) await writeFile(join(context, name), text);
    await chmod(join(context, 'script.sh'), 0o755);
    await chmod(join(context, 'dir/sub'), 0o750);
    await chmod(join(context, 'b.txt'), 0o600);
    await symlink('sub/c.txt', join(context, 'dir/link'));
    execFileSync('tar', [
      '-C',
      context,
      '--owner=21',
      '--group=22',
      '-czf',
      join(context, 'packed.tar.gz'),
      'dir',
      'a.txt',
    ]);
    execFileSync('tar', [
      '-C',
      context,
      '--owner=0',
      '--group=0',
      '-cf',
      join(context, 'plain.tar'),
      'b.txt',
      'dir/sub',
    ]);
    await setOld(context);
  }

  async function setOld(path: string): Promise<void> {
    const stat = await lstat(path);
    if (stat.isDirectory()) for (const name of await readdir(path)) await setOld(join(path, name));
    await (stat.isSymbolicLink() ? lutimes : utimes)(path, OLD, OLD);
  }

  /** The same base image in both engines. */
  async function makeBase(): Promise<void> {
    const root = join(dir, 'root');
    for (const name of [
      'bin',
      'etc',
      'home/user',
      'tmp',
      'root',
      'var/tmp',
      'run',
      'dev',
      'proc',
      'sys',
      'usr',
    ])
      await mkdir(join(root, name), { recursive: true });
    await chmod(root, 0o755);
    for (const name of ['tmp', 'var/tmp']) await chmod(join(root, name), 0o1777);
    await chmod(join(root, 'root'), 0o700);
    await cp(BUSYBOX, join(root, 'bin/busybox'));
    for (const applet of APPLETS.split(' ')) await symlink('busybox', join(root, 'bin', applet));
    await writeFile(
      join(root, 'etc/passwd'),
      'root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1::/:/bin/sh\nworker:x:7:7::/work:/bin/sh\nuser:x:1000:1000::/home/user:/bin/sh\n',
    );
    await writeFile(join(root, 'etc/group'), 'root:x:0:\ndaemon:x:1:\nworker:x:7:\nuser:x:1000:\n');
    execFileSync('chown', ['1000:1000', join(root, 'home/user')]);
    const archive = join(dir, 'root.tar');
    execFileSync('tar', ['-C', root, '--numeric-owner', '-cf', archive, '.']);
    await engine('import', '-c', 'ENV PATH=/bin', archive, 'box:latest');
    await engine(
      'import',
      '-c',
      'ENV PATH=/bin',
      '-c',
      'CMD ["of-the-base"]',
      archive,
      'box-with-cmd:latest',
    );
    for (const image of ['box', 'box-with-cmd']) {
      const saved = join(dir, `${image}.tar`);
      await engine('save', '-o', saved, `${image}:latest`);
      const { code, stderr } = await cay.run('image', 'import', saved);
      if (code !== 0) throw new Error(stderr);
    }
  }

  beforeAll(async () => {
    dir = await mkdtemp('/tmp/cay-docker-build-');
    [docker, cay] = await Promise.all([startDockerd(), openCay({ CAY_RUNTIME: 'runc' })]);
    const { code, stderr } = await cay.run('up', '-d');
    if (code !== 0) throw new Error(stderr);
    const { url, key } = JSON.parse(await readFile(join(cay.dataDir, 'cli.json'), 'utf8')) as {
      url: string;
      key: string;
    };
    server = { url, apiKey: key };
    await makeBase();
    await makeContext();
  }, 120_000);
  afterAll(async () => {
    await cay?.[Symbol.asyncDispose]();
    await docker?.stop();
    await rm(dir, { recursive: true, force: true });
  });

  async function byDocker(
    tag: string,
    { args = {}, target }: Case,
    file: string,
  ): Promise<{ files: Map<string, Found>; config: Record<string, unknown> }> {
    const given = Object.entries(args).flatMap(([name, value]) => ['--build-arg', `${name}=${value}`]);
    await engine(
      'build',
      '--network=none',
      '-t',
      tag,
      '-f',
      file,
      ...given,
      ...(target === undefined ? [] : ['--target', target]),
      join(dir, 'context'),
    );
    const { stdout: container } = await engine('create', tag, 'none');
    const exported = spawn('docker', ['-H', docker.host, 'export', container.trim()], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const files = await entriesOf(exported.stdout);
    await engine('rm', '-v', container.trim());
    const { stdout } = await engine('image', 'inspect', tag);
    const [{ Config: config }] = JSON.parse(stdout) as [{ Config: Record<string, unknown> }];
    return { files, config };
  }

  async function byCay(
    name: string,
    { args = {}, target }: Case,
    file: string,
  ): Promise<{ files: Map<string, Found>; template: Template }> {
    const given = Object.entries(args).flatMap(([arg, value]) => ['--build-arg', `${arg}=${value}`]);
    const built = await cay.run(
      'template',
      'build',
      name,
      join(dir, 'context'),
      '-f',
      file,
      ...given,
      ...(target === undefined ? [] : ['--target', target]),
    );
    if (built.code !== 0) throw new Error(built.stderr);
    const template = await cay.json<Template>('template', 'inspect', name);
    const box = await Sandbox.create({ template: name }, server);
    try {
      const files = new Map<string, Found>();
      for await (const top of box.files.list('/', { user: 'root' })) {
        if (OF_DOCKER.test(top.name)) continue;
        files.set(top.name, {
          type: top.type,
          mode: top.type === 'symlink' ? 0 : top.mode,
          owner: `${top.uid}:${top.gid}`,
          content:
            top.type === 'file'
              ? createHash('sha256')
                  .update(await box.files.read(top.path, { user: 'root' }))
                  .digest('hex')
              : (top.target ?? ''),
          ...(top.type === 'file' && { modifiedAtMs: Math.floor(top.modifiedAtMs / 1000) * 1000 }),
        });
        if (top.type !== 'directory') continue;
        for (const [path, found] of await entriesOf(box.files.download(top.path, { user: 'root' }), top.name))
          files.set(path, found);
      }
      return { files, template };
    } finally {
      await box.kill();
    }
  }

  it.for(CASES.map((each, index) => [each.name, each, index] as const))(
    '%s',
    async ([, each, index], test) => {
      const later = index % SHORT_TIER_TAKES === 0 ? undefined : whyLater();
      if (later !== undefined) return test.skip(later);
      const file = join(dir, 'context/Dockerfile');
      await writeFile(file, `${each.dockerfile}\n`);
      const ignore = join(dir, 'context/.dockerignore');
      if (each.dockerignore !== undefined) await writeFile(ignore, each.dockerignore);
      try {
        const theirs = await byDocker(`case-${index}`, each, file);
        const ours = await byCay(`case-${index}`, each, file);
        expect(difference(theirs.files, ours.files, Object.keys(theirs.config['Volumes'] ?? {}))).toEqual([]);
        expect(ours.template.config).toMatchObject(expectedConfig(theirs.config));
      } finally {
        await rm(ignore, { force: true });
      }
    },
  );
});

/** Lines that say what differs, as `path: theirs, ours`. */
function difference(
  theirs: Map<string, Found>,
  ours: Map<string, Found>,
  /** Docker exports none of them. */
  volumes: readonly string[],
): string[] {
  const lines: string[] = [];
  for (const path of new Set([...theirs.keys(), ...ours.keys()])) {
    const [their, our] = [theirs.get(path), ours.get(path)];
    if (!their && (OF_SANDBOXES.has(path) || volumes.includes(`/${path}`))) continue;
    if (!their || !our) {
      lines.push(`${path}: ${their ? 'is missing' : 'is there'} here`);
      continue;
    }
    for (const key of ['type', 'mode', 'owner', 'content'] as const)
      if (their[key] !== our[key])
        lines.push(`${path}: ${key} ${shown(their[key])}, here ${shown(our[key])}`);
    if (their.modifiedAtMs === OLD.getTime() && our.modifiedAtMs !== OLD.getTime())
      lines.push(`${path}: the time is not kept`);
  }
  return lines.sort();
}

const shown = (value: string | number) => (typeof value === 'number' ? value.toString(8) : value);

interface DockerConfig {
  Env?: string[] | null;
  User?: string;
  WorkingDir?: string;
  Cmd?: string[] | null;
  Entrypoint?: string[] | null;
  ExposedPorts?: Record<string, unknown> | null;
  Volumes?: Record<string, unknown> | null;
  Labels?: Record<string, string> | null;
  StopSignal?: string;
  Shell?: string[] | null;
  OnBuild?: string[] | null;
  Healthcheck?: { Test: string[] } | null;
}

function expectedConfig(given: DockerConfig): Record<string, unknown> {
  const env = Object.fromEntries(
    (given.Env ?? []).map((line) => [line.slice(0, line.indexOf('=')), line.slice(line.indexOf('=') + 1)]),
  );
  return {
    env,
    user: given.User ?? '',
    workdir: given.WorkingDir ?? '',
    cmd: given.Cmd ?? [],
    entrypoint: given.Entrypoint ?? [],
    exposed: expect.toSatisfy(
      (ports: string[]) =>
        ports.toSorted().join() ===
        Object.keys(given.ExposedPorts ?? {})
          .sort()
          .join(),
    ),
    volumes: expect.toSatisfy(
      (volumes: string[]) =>
        volumes.toSorted().join() ===
        Object.keys(given.Volumes ?? {})
          .sort()
          .join(),
    ),
    labels: given.Labels ?? {},
    stopSignal: given.StopSignal ?? '',
    shell: given.Shell ?? [],
    onBuild: given.OnBuild ?? [],
    healthcheck: given.Healthcheck ? { test: given.Healthcheck.Test } : null,
  };
}
