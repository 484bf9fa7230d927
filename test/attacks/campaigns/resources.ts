/**
 * Two tenants make volumes, secrets, buckets, templates, ports, networks and turns of the same names, and try
 * the other's by name and by id on every route, as does a stranger. Whatever the order of calls: nobody
 * reads, changes, uses or removes what is another's, or learns that it is there.
 */
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import type { Reply, Target, Tenant } from '../support/target.ts';

const NAMES = ['one', 'two', 'three'];
const PATIENCE_MS = 5_000;

interface Side {
  tenant: Tenant;
  /** What no answer to anybody else may have in it. */
  canary: string;
  sandbox: string;
  sandboxName: string;
  snapshot: string;
  volumes: Map<string, string>;
}

export const resources: Campaign = {
  name: 'resources',
  targets: [{ backend: 'memory' }],
  async open(target, random) {
    const sides = [await settle(target.alice, random), await settle(target.bob, random)] as const;
    return {
      async next() {
        const [mine, theirs] = random.chance(0.5) ? sides : [sides[1], sides[0]];
        if (random.chance(0.4)) return own(mine, theirs, random);
        return random.chance(0.25) ? stranger(target, theirs, random) : foreign(mine, theirs, random);
      },
    };
  },
};

async function settle(tenant: Tenant, random: Random): Promise<Side> {
  const canary = `canary-${tenant.name}-${random.below(1e9)}`;
  const sandboxName = `box-of-${tenant.name}`;
  const { id } = await tenant.create({ name: sandboxName, labels: { canary }, env: { CANARY: canary } });
  const { json } = await tenant.call('POST', `/v1/sandboxes/${id}/snapshots`, { body: { name: canary } });
  const side: Side = {
    tenant,
    canary,
    sandbox: id,
    sandboxName,
    snapshot: json?.id ?? 'snp_none',
    volumes: new Map(),
  };
  for (const name of NAMES) await make(side, name);
  return side;
}

/** Everything that has a name, with the canary in whatever may hold it. Fails where it is there already. */
async function make({ tenant, canary, snapshot, volumes }: Side, name: string): Promise<Reply[]> {
  const volume = await tenant.call('POST', '/v1/volumes', { body: { name, labels: { canary } } });
  if (volume.status < 300) volumes.set(name, volume.json.id);
  return [
    volume,
    await tenant.call('PUT', `/v1/secrets/${name}`, { body: { value: canary } }),
    await tenant.call('POST', '/v1/buckets', {
      body: { name, bucket: canary, endpoint: 'https://s3.example.com', accessKeyId: 'key', secret: name },
    }),
    await tenant.call('PUT', `/v1/templates/${name}`, { body: { snapshot } }),
  ];
}

/** A call for what is the tenant's own. It may fail; its answer has nothing of the other's. */
async function own(mine: Side, theirs: Side, random: Random): Promise<string> {
  const { tenant, volumes, sandbox } = mine;
  const name = random.pick(NAMES);
  const calls: (() => Promise<Reply>)[] = [
    async () => (await make(mine, name))[0]!,
    () =>
      tenant.call(
        'GET',
        random.pick([
          '/v1/volumes',
          '/v1/secrets',
          '/v1/buckets',
          '/v1/templates',
          '/v1/builds',
          '/v1/events',
          '/v1/stats',
          '/v1/keys',
          '/v1/projects',
          '/v1/snapshots',
        ]),
      ),
    () => tenant.call('GET', `/v1/volumes/${name}`),
    () => tenant.call('DELETE', `/v1/volumes/${random.pick([name, volumes.get(name) ?? name])}`),
    () => tenant.call('DELETE', `/v1/secrets/${name}?force=true`),
    () => tenant.call('DELETE', `/v1/buckets/${name}`),
    () => tenant.call('DELETE', `/v1/templates/${name}`),
    () => tenant.call('GET', `/v1/sandboxes/${sandbox}/network`),
    () => tenant.call('GET', `/v1/sandboxes/${sandbox}/ports`),
    () =>
      tenant.call('POST', '/v1/sandboxes', {
        body: { name: `new-${random.below(3)}`, template: name, mounts: [{ volume: name, path: '/v' }] },
      }),
    async () => tenant.call('DELETE', `/v1/sandboxes/new-${random.below(3)}`),
  ];
  const reply = await random.pick(calls)();
  return judged(`${tenant.name}, own`, reply, theirs);
}

/** A call for what is another's. Nothing is found, whatever the way. */
async function foreign(mine: Side, theirs: Side, random: Random): Promise<string> {
  const { tenant } = mine;
  const name = random.pick(NAMES);
  const box = random.pick([theirs.sandbox, theirs.sandboxName]);
  const volume = theirs.volumes.get(name) ?? 'vol_none';
  const [method, path, body] = random.pick<[string, string, object?]>([
    ['GET', `/v1/volumes/${volume}`],
    ['DELETE', `/v1/volumes/${volume}`],
    ['GET', `/v1/volumes/${volume}/archive`],
    ['POST', '/v1/volumes', { name: `clone-${random.below(1e6)}`, from: volume }],
    ['POST', '/v1/sandboxes', { mounts: [{ volume, path: '/v' }] }],
    ['POST', '/v1/sandboxes', { snapshot: theirs.snapshot }],
    ['POST', '/v1/sandboxes', { template: theirs.snapshot }],
    ['PUT', `/v1/templates/stolen-${random.below(3)}`, { snapshot: theirs.snapshot }],
    ['GET', `/v1/sandboxes/${box}/ports`],
    ['PUT', `/v1/sandboxes/${box}/ports/3000`, { visibility: 'public' }],
    ['POST', `/v1/sandboxes/${box}/published`, { port: 3000 }],
    ['DELETE', `/v1/sandboxes/${box}/published/${20_000 + random.below(100)}`],
    ['GET', `/v1/sandboxes/${box}/network`],
    ['PUT', `/v1/sandboxes/${box}/network`, { policy: 'none' }],
    ['POST', `/v1/sandboxes/${box}/network/rules`, { rules: [{ allow: 'example.com' }] }],
    ['GET', `/v1/sandboxes/${box}/network/attempts`],
    ['GET', `/v1/sandboxes/${box}/buckets`],
    ['POST', `/v1/sandboxes/${box}/buckets/sync`, {}],
    ['POST', `/v1/buckets/${name}/import`, { sandbox: box, path: '/tmp/x' }],
    ['POST', `/v1/buckets/${name}/export`, { sandbox: box, path: '/etc' }],
    ['GET', `/v1/sandboxes/${box}/stats/history`],
    ['GET', `/v1/sandboxes/${box}/stats`],
    ['POST', `/v1/sandboxes/${box}/move`, { platform: 'local' }],
    ['POST', `/v1/sandboxes/${box}/fork`, {}],
    ['POST', `/v1/sandboxes/${box}/rollback`, { to: theirs.snapshot }],
    ['GET', `/v1/snapshots/${theirs.snapshot}/archive`],
    ['DELETE', `/v1/snapshots/${theirs.snapshot}`],
    ['DELETE', `/v1/sandboxes/${box}`],
    ['POST', `/v1/sandboxes/${box}/exec`, { argv: ['true'] }],
  ]);
  const signal = AbortSignal.timeout(PATIENCE_MS);
  const before = await theirs.tenant.call('GET', `/v1/volumes/${volume}`);
  const reply = await tenant.call(method, path, { ...(body && { body }), signal });
  const what = judged(
    `${tenant.name}, another's: ${method} ${path} ${JSON.stringify(body ?? '')}`,
    reply,
    theirs,
  );
  // Removing what does not exist succeeds.
  if (reply.status < 400 && method !== 'DELETE') throw new Error(`${what} ${reply.text.slice(0, 300)}`);
  await requireThere(theirs, what);
  const after = await theirs.tenant.call('GET', `/v1/volumes/${volume}`);
  if (after.status !== before.status)
    throw new Error(`${what}: the volume is ${after.text.slice(0, 200)} now`);
  return what;
}

async function stranger(target: Target, theirs: Side, random: Random): Promise<string> {
  const name = random.pick(NAMES);
  const path = random.pick([
    `/v1/volumes/${theirs.volumes.get(name) ?? name}`,
    `/v1/volumes/${name}/archive`,
    `/v1/secrets/${name}`,
    `/v1/buckets/${name}`,
    `/v1/buckets/${name}/objects`,
    `/v1/templates/${name}`,
    `/v1/sandboxes/${theirs.sandbox}/network`,
    `/v1/sandboxes/${theirs.sandbox}/ports`,
    `/v1/snapshots/${theirs.snapshot}/archive`,
    '/v1/builds',
    `/preview/${theirs.sandbox}/3000/`,
  ]);
  const method = random.pick(['GET', 'PUT', 'POST', 'DELETE']);
  const reply = await target.stranger(method, path, method === 'GET' ? {} : { body: {} });
  const what = judged(`stranger ${method} ${path}`, reply, theirs);
  if (reply.status < 400) throw new Error(what);
  await requireThere(theirs, what);
  return what;
}

function judged(what: string, { status, text }: Reply, theirs: Side): string {
  const words = `${what} → ${status}`;
  if (status >= 500 && status !== 503) throw new Error(`${words} ${text.slice(0, 500)}`);
  if (text.includes(theirs.canary)) throw new Error(`${words} tells of another: ${text.slice(0, 500)}`);
  return words;
}

/** What only its owner may touch is as it was. */
async function requireThere({ tenant, sandbox, snapshot, canary }: Side, what: string): Promise<void> {
  const box = await tenant.call('GET', `/v1/sandboxes/${sandbox}`);
  if (box.json?.state !== 'active' || box.json?.labels?.canary !== canary || box.json.ports.length > 0)
    throw new Error(`${what}: the sandbox is ${box.text.slice(0, 300)} now`);
  const kept = await tenant.call('GET', `/v1/snapshots/${snapshot}`);
  if (kept.status !== 200) throw new Error(`${what}: the snapshot is ${kept.text.slice(0, 200)} now`);
}
