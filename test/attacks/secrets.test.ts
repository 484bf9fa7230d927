/**
 * Secrets that tenants hand over, and those that the server gives out, are not readable in the
 * records, the events, the logs or the list of processes. Each is a canary, looked for everywhere.
 */
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync, readFileSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Sandbox } from 'e2b';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { onEachPlatform } from './support/platforms.ts';
import { DOCKER_IMAGE, type Reply, type Target } from './support/target.ts';

const canary = (name: string) => `canary-${name}-${randomBytes(8).toString('hex')}`;
const VALUES = {
  create: canary('create'),
  exec: canary('exec'),
  recorded: canary('recorded'),
  e2b: canary('e2b'),
  e2bCommand: canary('e2b-command'),
  build: canary('build'),
  failedBuild: canary('failed-build'),
  refused: canary('refused'),
};
/**
 * Trees of sandboxes are their own, memory images have what their processes had, and the file of the command
 * line has the admin's key: SECURITY.md says so.
 */
const KNOWN = ['engine/storage', 'engine/images', 'cli.json'];

/** Uses everything that takes a secret, and gives what the server answered with. */
async function handOut(target: Target, refusals: Reply[]): Promise<Record<string, string>> {
  const { alice, admin, url, stranger } = target;
  const { id } = await alice.create({ env: { SECRET: VALUES.create }, cmd: ['sleep', '1000'] });
  await alice.exec(id, ['sh', '-c', `echo ${VALUES.exec} > /dev/null`], { env: { SECRET: VALUES.exec } });
  await alice.call('POST', `/v1/sandboxes/${id}/commands`, {
    body: { argv: ['sleep', '1000'], env: { SECRET: VALUES.recorded } },
  });
  const why = target.lacks('snapshots');
  if (why !== undefined) console.info(`${target.capabilities.backend}: no snapshot, fork and build: ${why}`);
  const snapshot = await alice.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: {} });
  expect(snapshot.status === 201, snapshot.text).toBe(why === undefined);
  const forked = await alice.call('POST', `/v1/sandboxes/${id}/fork`, { body: {} });
  expect(forked.status === 201, forked.text).toBe(why === undefined);
  refusals.push(...[snapshot, forked].filter(({ status }) => status >= 400));

  const sandbox = await Sandbox.create('base', {
    apiKey: alice.key,
    apiUrl: url,
    sandboxUrl: url,
    envs: { SECRET: VALUES.e2b },
  });
  await sandbox.commands.run('true', { envs: { SECRET: VALUES.e2bCommand } });
  const signed = new URL(await sandbox.downloadUrl('/etc/passwd'));
  const inside = { 'e2b-sandbox-id': sandbox.sandboxId, 'e2b-sandbox-port': '49983' };
  for (const method of ['GET', 'POST'])
    await stranger(method, signed.pathname + signed.search, { headers: inside });

  await build(target, refusals, 'one', VALUES.build);
  await build(target, refusals, 'two', `${VALUES.failedBuild}\${nothing?${VALUES.failedBuild}}`);
  const hook = await alice.call('POST', '/v1/webhooks', { body: { url: 'https://hooks.example/' } });
  const link = new URL(
    (await alice.call('GET', `/templates/one/files/${'a'.repeat(64)}`)).json.url as string,
  );
  await stranger('PUT', link.pathname + link.search, { body: 'no archive' });
  const key = await admin.call('POST', '/v1/keys', { body: { name: 'one', project: 'alice' } });
  const port = await alice.call('PUT', `/v1/sandboxes/${id}/ports/3000`, { body: { visibility: 'private' } });
  await stranger('GET', `/preview/${id}/3000/?cay_token=${port.json.token as string}`);
  const token = (sandbox as unknown as { envdAccessToken: string }).envdAccessToken;
  await stranger('GET', `/envs?token=${token}`, { headers: { ...inside, 'x-access-token': token } });

  for (const body of [
    { env: { 'NO=NAME': VALUES.refused } },
    { env: { SECRET: `${VALUES.refused}\0` } },
    { env: { SECRET: [VALUES.refused] } },
    { env: VALUES.refused },
    { env: { SECRET: VALUES.refused }, limits: { cpus: -1 } },
    { env: { SECRET: VALUES.refused }, template: 'no-such-template' },
    { env: { SECRET: VALUES.refused.repeat(10_000) } },
  ]) {
    refusals.push(await alice.call('POST', '/v1/sandboxes', { body }));
    refusals.push(
      await alice.call('POST', `/v1/sandboxes/${id}/exec`, { body: { argv: ['no-such-program'], ...body } }),
    );
  }
  return {
    'the key': alice.key,
    'another key': key.json.secret as string,
    'the secret of a webhook': hook.json.secret as string,
    'an access token': token,
    'the token of a port': port.json.token as string,
    'the signature of an upload link': link.searchParams.get('signature')!,
    'the signature of an address': signed.searchParams.get('signature')!,
  };
}

async function build(
  { alice, lacks }: Target,
  refusals: Reply[],
  name: string,
  value: string,
): Promise<void> {
  const made = await alice.call('POST', '/v3/templates', { body: { name } });
  if (lacks('snapshots') !== undefined && made.status >= 400) return void refusals.push(made);
  const { json } = made;
  const { templateID, buildID } = json as { templateID: string; buildID: string };
  const steps = [{ type: 'ENV', args: ['SECRET', value] }];
  await alice.call('POST', `/v2/templates/${templateID}/builds/${buildID}`, {
    body: { fromTemplate: 'base', steps },
  });
  for (let tries = 0; tries < 200; tries++, await sleep(50)) {
    const status = await alice.call('GET', `/templates/${templateID}/builds/${buildID}/status`);
    if (status.json?.status === 'building' || status.json?.status === 'waiting') continue;
    refusals.push(status);
    return;
  }
  throw new Error(`The build "${name}" has not ended`);
}

/** Files below a directory with any of the given texts in them, as `file: name`. */
function filesWith(directory: string, texts: Record<string, string>): string[] {
  return readdirSync(directory, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name))
    .filter((path) => !KNOWN.some((known) => relative(directory, path).startsWith(known)))
    .flatMap((path) => {
      const content = existsSync(path) ? readFileSync(path) : Buffer.alloc(0);
      return namesIn(content, texts).map((name) => `${relative(directory, path)}: ${name}`);
    });
}

function namesIn(content: Buffer | string, texts: Record<string, string>): string[] {
  const stands = (text: string) => content.includes(text) || content.includes(encodeURIComponent(text));
  return Object.entries(texts).flatMap(([name, text]) => (stands(text) ? [name] : []));
}

/** Command lines and environments of all processes that are in no sandbox. */
function hostProcesses(): string {
  const own = readlinkSync('/proc/self/ns/pid');
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        if (readlinkSync(`/proc/${pid}/ns/pid`) !== own) return '';
        return readFileSync(`/proc/${pid}/cmdline`, 'utf8') + readFileSync(`/proc/${pid}/environ`, 'utf8');
      } catch {
        return '';
      }
    })
    .join('\n');
}

onEachPlatform('secrets', (platform) => {
  let target: Target;
  let given: Record<string, string>;
  const refusals: Reply[] = [];
  beforeAll(async () => {
    target = await platform.start();
    given = await handOut(target, refusals);
  }, 120_000);
  afterAll(() => target?.[Symbol.asyncDispose](), 60_000);

  it('stand in no file of the data directory', async () => {
    expect(filesWith(target.dataDir, { ...VALUES, ...given })).toEqual([]);
  });

  it('stand in no backup', async () => {
    const answer = await fetch(`${target.url}/v1/admin/backup`, {
      method: 'POST',
      headers: { authorization: `Bearer ${target.admin.key}` },
    });
    const bytes = Buffer.from(await answer.arrayBuffer());
    expect(answer.status).toBe(200);
    const key = readFileSync(join(target.dataDir, 'control/secret.key'), 'utf8').trim();
    expect(namesIn(bytes, { ...VALUES, ...given, 'the key of the installation': key })).toEqual([]);
  });

  it('stand in no log', () => {
    expect(namesIn(target.log(), { ...VALUES, ...given })).toEqual([]);
  });

  it('stand in no event', async () => {
    for (const tenant of [target.alice, target.admin]) {
      const { text, status } = await tenant.call('GET', '/v1/events?limit=1000');
      expect(status).toBe(200);
      expect(namesIn(text, { ...VALUES, ...given })).toEqual([]);
    }
  });

  it('stand in the arguments and environment of no process outside of sandboxes', () => {
    expect(namesIn(hostProcesses(), { ...VALUES, ...given })).toEqual([]);
  });

  it('stand in no answer that refuses something', () => {
    expect(refusals.length).toBeGreaterThan(10);
    expect(refusals.filter(({ status }) => status >= 500 && status !== 501)).toEqual([]);
    expect(refusals.flatMap(({ text }) => namesIn(text, VALUES))).toEqual([]);
  });

  it('are in files and directories that only their owner may read', () => {
    const wide = [
      'control',
      'control/secret.key',
      'control/records.db',
      'cli.json',
      ...(platform.name === 'docker' ? [] : ['engine/sandboxes', 'engine/snapshots', 'engine/images']),
    ].filter((name) => {
      const mode = statSync(join(target.dataDir, name)).mode & 0o077;
      // What is in a directory of mode 0700 needs no more.
      return mode !== 0 && !name.startsWith('control/records');
    });
    expect(wide).toEqual([]);
  });

  it('reach those that they are for all the same', async () => {
    const { sandboxes } = (await target.alice.call('GET', '/v1/sandboxes')).json as {
      sandboxes: { id: string }[];
    };
    const seen = await Promise.all(
      sandboxes.map(({ id }) => target.alice.exec(id, ['sh', '-c', 'echo $SECRET'])),
    );
    expect(seen.map(({ stdout }) => stdout.trim()).toSorted()).toEqual(
      // The fork has it too.
      [VALUES.create, ...(target.lacks('snapshots') ? [] : [VALUES.create]), VALUES.e2b].toSorted(),
    );
  });

  it.skipIf(platform.name !== 'docker')('stand nowhere in what the engine knows of its containers', () => {
    const engine = (...args: string[]) =>
      execFileSync('docker', ['--host', target.docker!.host, ...args], { encoding: 'utf8' });
    const containers = engine('ps', '--all', '--quiet').trim().split('\n');
    expect(containers.length).toBeGreaterThanOrEqual(2);
    const known = engine('inspect', ...containers) + engine('image', 'inspect', DOCKER_IMAGE);
    expect(namesIn(known, { ...VALUES, ...given })).toEqual([]);
  });
});
