/**
 * A tenant asks for runtimes and limits at random, by creates, forks, snapshots, changes and restarts,
 * through both APIs. Whatever a sandbox then has is within what the operator allows.
 */
import type { Random } from '../../faults/model/random.ts';
import type { Campaign } from '../support/campaign.ts';
import { PLATFORMS } from '../support/platforms.ts';
import type { Reply } from '../support/target.ts';

const MiB = 1024 ** 2;
const MAXIMA: Record<string, number> = {
  cpus: 2,
  memoryBytes: 512 * MiB,
  diskBytes: 1024 * MiB,
  pids: 128,
  openFiles: 4096,
  timeoutMs: 600_000,
};
const FLAGS = ['--max-limit', 'cpus=2,memory=512m,disk=1g,pids=128,open-files=4096,timeout=10m'];
/** More than these are removed again. */
const MOST = 4;

/** At the maximum, beyond it by one, far beyond it, unlimited, or nonsense. */
function amount(random: Random, limit: string): unknown {
  const maximum = MAXIMA[limit]!;
  return random.pick([
    maximum,
    maximum + 1,
    maximum * 1000,
    Number.MAX_SAFE_INTEGER,
    null,
    -1,
    0,
    String(maximum),
    maximum / 2,
    1e308,
  ]);
}

function limits(random: Random, ...without: string[]): Record<string, unknown> {
  const names = Object.keys(MAXIMA).filter((name) => name !== 'timeoutMs' && !without.includes(name));
  return Object.fromEntries(
    names.filter(() => random.chance(0.3)).map((name) => [name, amount(random, name)]),
  );
}

function requireAllowed(
  { json }: Reply,
  allowed: readonly string[],
  maxima: Record<string, number>,
  what: string,
): void {
  const boxes = json?.sandboxes ?? [json];
  for (const box of boxes) {
    if (box?.limits === undefined) continue;
    for (const [name, maximum] of Object.entries(maxima)) {
      const value = name === 'timeoutMs' ? box.timeoutMs : box.limits[name];
      if (value === null || value > maximum)
        throw new Error(`${what}: ${box.id} has ${name} ${value}, beyond ${maximum}`);
    }
    if (box.runtime !== null && !allowed.includes(box.runtime))
      throw new Error(`${what}: ${box.id} runs on ${box.runtime}`);
  }
}

export const allowances: Campaign = {
  name: 'allowances',
  targets: [
    { backend: 'memory' },
    ...PLATFORMS.map(({ target }) => ({ ...target, dockerDiskBytes: 8 * 1024 * MiB })),
  ],
  flags: ({ runtime }) => (runtime === undefined ? FLAGS : [...FLAGS, '--allow-runtime', runtime]),
  async open({ alice, admin, lacks }, random) {
    const maxima = { ...MAXIMA };
    // What the platform cannot enforce has no maximum there, as its capabilities say.
    const why = lacks('diskLimit');
    if (why !== undefined) {
      console.info(`allowances: the disk is not looked at: ${why}`);
      delete maxima['diskBytes'];
    }
    const allowed: string[] = (await admin.call('GET', '/v1/capabilities')).json.runtimes;
    const boxes: string[] = [];
    const snapshots: string[] = [];
    const e2b = { 'x-api-key': alice.key };

    async function asked(): Promise<[string, Reply | undefined]> {
      const runtime = random.chance(0.3)
        ? {
            runtime: random.pick(['process', 'runsc', 'runc', 'crun', 'memory', 'PROCESS', '../process', '']),
          }
        : {};
      const timeoutMs = random.chance(0.3) ? { timeoutMs: amount(random, 'timeoutMs') } : {};
      const snapshot = snapshots.length > 0 && random.chance(0.3) ? { snapshot: random.pick(snapshots) } : {};
      const body = { limits: limits(random), ...runtime, ...timeoutMs, ...snapshot };
      const create = async (): Promise<[string, Reply]> => [
        `create ${JSON.stringify(body)}`,
        await alice.call('POST', '/v1/sandboxes', { body }),
      ];
      if (boxes.length === 0) return create();
      const box = random.pick(boxes);
      const change = { limits: limits(random, 'openFiles'), ...timeoutMs };
      switch (random.pick(['create', 'change', 'fork', 'snapshot', 'restart', 'e2b create', 'e2b timeout'])) {
        case 'change':
          return [
            `change ${JSON.stringify(change)}`,
            await alice.call('PATCH', `/v1/sandboxes/${box}`, { body: change }),
          ];
        case 'fork':
          return [
            'fork',
            await alice.call('POST', `/v1/sandboxes/${box}/fork`, { body: { count: 1, memory: false } }),
          ];
        case 'snapshot': {
          const { json } = await alice.call('POST', `/v1/sandboxes/${box}/snapshots`, { body: {} });
          if (json?.id) snapshots.push(json.id);
          return ['snapshot', undefined];
        }
        case 'restart':
          await alice.call('POST', `/v1/sandboxes/${box}/stop`, { body: { graceMs: 0 } });
          return ['restart', await alice.call('POST', `/v1/sandboxes/${box}/start`)];
        case 'e2b create': {
          const wanted = {
            templateID: snapshots.length > 0 ? random.pick(snapshots) : 'base',
            timeout: random.pick([1, 600, 601, 86_400]),
          };
          const { json } = await alice.call('POST', '/v2/sandboxes', { body: wanted, headers: e2b });
          const made = json?.sandboxID === undefined ? undefined : `sbx_${json.sandboxID}`;
          return [
            `e2b create ${JSON.stringify(wanted)}`,
            made && (await alice.call('GET', `/v1/sandboxes/${made}`)),
          ] as [string, Reply];
        }
        case 'e2b timeout': {
          const timeout = random.pick([1, 600, 601, 31_536_000]);
          await alice.call('POST', `/sandboxes/${box.slice(4)}/timeout`, { body: { timeout }, headers: e2b });
          return [`e2b timeout ${timeout}`, await alice.call('GET', `/v1/sandboxes/${box}`)];
        }
        default:
          return create();
      }
    }

    return {
      async next() {
        const [what, reply] = await asked();
        if (reply) requireAllowed(reply, allowed, maxima, what);
        for (const { id } of reply?.json?.sandboxes ?? (reply?.json?.limits ? [reply.json] : []))
          if (!boxes.includes(id)) boxes.push(id);
        while (boxes.length > MOST) await alice.call('DELETE', `/v1/sandboxes/${boxes.shift()}`);
        if (snapshots.length > MOST) await alice.call('DELETE', `/v1/snapshots/${snapshots.shift()}`);
        return `${what} → ${reply?.status ?? 'nothing to look at'}`;
      },
    };
  },
};
